/* Access between devices. Each can reach every other one, as where all are linked; a context is given access to another
 * context's memory. Copies need none. */
#include "memory/memory.h"
#include <stdlib.h>

/* A context whose memory may be accessed. Its uid tells it from a later one with the same handle. */
typedef struct sim_peer {
    struct sim_peer *next;
    uint64_t uid;
} sim_peer;

static sim_peer **find(sim_context *context, const sim_context *peer)
{
    sim_peer **link = &context->peers;
    while (*link && (*link)->uid != peer->uid)
        link = &(*link)->next;
    return link;
}

bool sim_peer_enabled(const sim_context *context, const sim_context *peer)
{
    const sim_peer *known = context->peers;
    while (known && known->uid != peer->uid)
        known = known->next;
    return known != NULL;
}

void sim_peers_free(sim_context *context)
{
    while (context->peers) {
        sim_peer *next = context->peers->next;
        free(context->peers);
        context->peers = next;
    }
}

CUresult sim_peer_enable(sim_context *context, sim_context *peer, unsigned flags)
{
    if (!sim_context_valid(peer))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (peer->device == context->device)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (sim_peer_enabled(context, peer))
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    sim_peer *made = malloc(sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (sim_peer){.next = context->peers, .uid = peer->uid};
    context->peers = made;
    return CUDA_SUCCESS;
}

CUresult sim_peer_disable(sim_context *context, const sim_context *peer)
{
    sim_peer **link = find(context, peer);
    sim_peer *known = *link;
    if (!known)
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    *link = known->next;
    free(known);
    return CUDA_SUCCESS;
}
