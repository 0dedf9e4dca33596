/* A graph of requests to a device service: a step is recorded once and launched again and again, in this process or in
 * a worker:
 *
 *     example_service_graph [isolated]
 *
 * The step is one of a Markov chain: next = A * now, now = next. When the context is lost, for instance because the
 * worker was killed, references and the graph are stale: the program makes them again and starts anew. */
#include <strata/strata.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STATES = 3, STEPS = 60 };

static const float chain[STATES * STATES] = {0.5f, 0.2f, 0.1f, 0.3f, 0.5f, 0.4f, 0.2f, 0.3f, 0.5f}; /* rows */

typedef struct walk {
    strata_service *service;
    strata_ref *a, *now, *next;
    strata_service_graph *step;
} walk;

/* Waits for the answer, and takes it. */
static strata_status take(strata_status sent, strata_future *future, strata_answer *answer)
{
    *answer = (strata_answer){0};
    if (sent != STRATA_SUCCESS)
        return sent;
    const strata_status status = strata_future_wait(future);
    strata_future_take(future, answer);
    strata_future_release(future);
    return status;
}

static strata_status finish(strata_status sent, strata_future *future)
{
    strata_answer answer;
    const strata_status status = take(sent, future, &answer);
    strata_host_buffer_release(answer.buffer);
    return status;
}

/* A reference with these values. */
static strata_status upload(walk *self, const float *values, size_t count, strata_ref **out)
{
    strata_host_buffer *buffer;
    strata_future *future = NULL;
    strata_answer answer;
    strata_status status = strata_service_allocate(self->service, STRATA_ELEMENT_F32, count, NULL, &future);
    status = take(status, future, &answer);
    *out = answer.ref;
    if (status == STRATA_SUCCESS)
        status = strata_host_buffer_create(count * sizeof *values, &buffer);
    if (status != STRATA_SUCCESS)
        return status;
    memcpy(strata_host_buffer_memory(buffer), values, count * sizeof *values);
    status = strata_service_copy_from_host(self->service, buffer, *out, NULL, &future);
    status = finish(status, future);
    strata_host_buffer_release(buffer);
    return status;
}

/* ---- the graph ---- */

static strata_status record_step(walk *self)
{
    strata_future *future = NULL;
    const strata_service_blas_call product = {.routine = STRATA_BLAS_GEMV,
                                              .call.gemv = {.order = STRATA_BLAS_ROWS,
                                                            .m = STATES,
                                                            .n = STATES,
                                                            .alpha = 1,
                                                            .a = strata_blas_of_ref(self->a),
                                                            .x = strata_blas_of_ref(self->now),
                                                            .y = strata_blas_of_ref(self->next)}};
    strata_status status = strata_service_graph_begin(self->service, "step", &self->step);
    if (status != STRATA_SUCCESS)
        return status;
    const strata_send_options into = {.graph = self->step}; /* recorded, and not done */
    status = strata_service_blas(self->service, &product, &into, NULL);
    if (status == STRATA_SUCCESS)
        status = strata_service_copy(self->service, self->next, self->now, &into, NULL);
    if (status == STRATA_SUCCESS)
        status = strata_service_graph_end(self->step, NULL, &future);
    return finish(status, future);
}

static strata_status prepare(walk *self)
{
    const float first[STATES] = {1, 0, 0};
    strata_status status = upload(self, chain, STATES * STATES, &self->a);
    if (status == STRATA_SUCCESS)
        status = upload(self, first, STATES, &self->now);
    if (status == STRATA_SUCCESS)
        status = upload(self, first, STATES, &self->next);
    return status == STRATA_SUCCESS ? record_step(self) : status;
}

static void let_go(walk *self)
{
    strata_service_graph_release(self->step);
    strata_ref_release(self->a);
    strata_ref_release(self->now);
    strata_ref_release(self->next);
    *self = (walk){.service = self->service};
}

/* What one sender asks is done in order, so that the copy comes behind all launches, whose answers are dropped. */
static strata_status walk_on(walk *self, float result[STATES])
{
    strata_host_buffer *buffer;
    strata_future *future = NULL;
    strata_status status = strata_host_buffer_create(STATES * sizeof(float), &buffer);
    if (status != STRATA_SUCCESS)
        return status;
    for (int i = 0; i < STEPS && status == STRATA_SUCCESS; i++)
        status = strata_service_graph_launch(self->step, NULL, NULL);
    if (status == STRATA_SUCCESS)
        status = strata_service_copy_to_host(self->service, self->now, buffer, NULL, &future);
    status = finish(status, future);
    memcpy(result, strata_host_buffer_memory(buffer), STATES * sizeof(float));
    strata_host_buffer_release(buffer);
    return status;
}

/* Once more for each context that was lost. */
static strata_status run(walk *self, float result[STATES])
{
    strata_status status = STRATA_ERROR_STALE;
    for (int attempt = 0; attempt < 3 && (status == STRATA_ERROR_STALE || status == STRATA_ERROR_POISONED); attempt++) {
        let_go(self);
        status = prepare(self);
        if (status == STRATA_SUCCESS)
            status = walk_on(self, result);
    }
    return status;
}

/* ---- the same on the host ---- */

static bool is_right(const float result[STATES])
{
    float now[STATES] = {1, 0, 0}, next[STATES];
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < STATES; i++) {
            next[i] = 0;
            for (int j = 0; j < STATES; j++)
                next[i] += chain[i * STATES + j] * now[j];
        }
        memcpy(now, next, sizeof now);
    }
    bool right = true;
    for (int i = 0; i < STATES; i++)
        right = right && fabsf(now[i] - result[i]) < 1e-4f;
    return right;
}

int main(int count, char **arguments)
{
    const bool isolated = count == 2 && strcmp(arguments[1], "isolated") == 0;
    const strata_service_options options = {.form = isolated ? STRATA_SERVICE_ISOLATED : STRATA_SERVICE_IN_PROCESS};
    float result[STATES] = {0};
    walk self = {0};
    strata_status status = strata_service_create(&options, &self.service);
    if (status == STRATA_SUCCESS)
        status = run(&self, result);
    if (status == STRATA_ERROR_UNSUPPORTED) /* there is no cuBLAS here */
        printf("left out: %s\n", strata_last_error()->message);
    else if (status != STRATA_SUCCESS)
        fprintf(stderr, "%s\n", strata_last_error()->message);
    else
        printf("%d steps of a graph, %s: %.4f %.4f %.4f\n", STEPS, isolated ? "isolated" : "in process",
               (double)result[0], (double)result[1], (double)result[2]);
    let_go(&self);
    const bool fine = status == STRATA_ERROR_UNSUPPORTED || (status == STRATA_SUCCESS && is_right(result));
    return strata_service_destroy(self.service) == STRATA_SUCCESS && fine ? 0 : 1;
}
