/* Streams, draining, and sequences that may stop before their end. */
#include "peers.h"

#include "bare.h"
#include "loops.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static _Noreturn void no_host_memory(void)
{
    fprintf(stderr, "%s: no host memory\n", program_invocation_short_name);
    exit(EXIT_FAILURE);
}

bool peer_open(peer *self, peer_choice *choice, size_t streams, uint64_t most)
{
    *self = (peer){.choice = choice, .kind = choice->kind, .stream_count = choice->kind->streams ? streams : 0};
    self->streams = calloc(streams, sizeof(CUstream)); /* the floor's are all NULL */
    if (!self->streams)
        no_host_memory();
    if (!self->kind->open(self, most)) {
        free(self->streams);
        return false;
    }
    if (self->kind->streams) {
        bare_check(bare.StreamCreate(&self->unknown, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        bare_check(bare.EventCreate(&self->event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
    return true;
}

void peer_drain(void *state)
{
    peer *self = state;
    for (size_t i = 0; i < self->stream_count; i++)
        bare_check(bare.StreamSynchronize(self->streams[i]), "cuStreamSynchronize");
    if (self->unknown)
        bare_check(bare.StreamSynchronize(self->unknown), "cuStreamSynchronize");
    if (self->kind->collect)
        self->kind->collect(self);
}

void peer_close(peer *self)
{
    peer_drain(self);
    if (self->kind->streams) {
        bare_check(bare.EventDestroy(self->event), "cuEventDestroy");
        bare_check(bare.StreamDestroy(self->unknown), "cuStreamDestroy");
    }
    self->kind->close(self);
    free(self->streams);
}

void peer_free_leftovers(peer *self, const peer_step *steps, size_t done, char *slots, unsigned char *live)
{
    for (size_t i = 0; i < done; i++)
        live[steps[i].slot] = steps[i].bytes != 0;
    for (size_t i = done; i-- > 0;)
        if (steps[i].bytes && live[steps[i].slot]) {
            live[steps[i].slot] = 0;
            self->kind->release(self, self->streams[steps[i].stream], slots + steps[i].slot * self->kind->slot_bytes);
        }
}

bool peer_run_steps(peer *self, const peer_step *steps, size_t count, char *slots, unsigned char *live, bool leftovers)
{
    size_t done = self->kind->steps(self, steps, count, slots);
    if (done < count || leftovers)
        peer_free_leftovers(self, steps, done, slots, live);
    return done == count;
}

void loop_no_memory(const peer *self)
{
    fprintf(stderr, "%s: %s (%s): no memory for a single block\n", program_invocation_short_name, self->choice->label,
            self->choice->text);
    exit(EXIT_FAILURE);
}
