/* A layer outside the library: `ceiling` refuses blocks above a size and counts live bytes by tag.
 *
 * It is a decorator. strata_resource is its first member, and it implements allocate, deallocate and destroy; every
 * other operation goes to the layer below. Once registered it can be named in stack texts like any other layer. Its one
 * driver call stands in a driver scope, since a program may call a layer on any thread. */
#include "cuda_calls.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strata/strata.h>

enum { TAGS = 256 };

typedef struct ceiling_options {
    uint64_t largest; /* bytes of one block; 0: no limit */
} ceiling_options;

typedef struct ceiling {
    strata_resource resource; /* first, so that a pointer to it is a pointer to the layer */
    int device;
    uint64_t largest;
    _Atomic size_t live[TAGS]; /* bytes by tag, the last for all further tags; any thread, relaxed: statistics */
} ceiling;

static cuda_calls cu; /* filled once, in main */

/* Free bytes of the device; 0 if the driver does not say. */
static size_t free_bytes(const ceiling *self)
{
    size_t free = 0, total;
    strata_driver_scope scope;
    if (strata_driver_scope_enter(&scope, self->device) != STRATA_SUCCESS)
        return 0;
    if (cu.MemGetInfo(&free, &total) != CUDA_SUCCESS)
        free = 0;
    strata_driver_scope_leave(&scope);
    return free;
}

static _Atomic size_t *live_bytes(ceiling *self, strata_tag tag)
{
    return &self->live[tag < TAGS ? tag : TAGS - 1];
}

static strata_status ceiling_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    ceiling *self = (ceiling *)resource;
    *out = (strata_block){0};
    if (self->largest && request->bytes > self->largest)
        return strata_fail(
            STRATA_ERROR_OUT_OF_BUDGET,
            "ceiling: request of %zu bytes (tag \"%s\") exceeds the largest block, %llu bytes; %zu are free",
            request->bytes, strata_tag_name(request->tag), (unsigned long long)self->largest, free_bytes(self));
    strata_status status = resource->upstream->ops->allocate(resource->upstream, request, out);
    if (status == STRATA_SUCCESS)
        atomic_fetch_add_explicit(live_bytes(self, out->tag), out->bytes, memory_order_relaxed);
    return status;
}

static strata_status ceiling_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    strata_status status = resource->upstream->ops->deallocate(resource->upstream, block, stream);
    if (status == STRATA_SUCCESS)
        atomic_fetch_sub_explicit(live_bytes((ceiling *)resource, block->tag), block->bytes, memory_order_relaxed);
    return status;
}

static void ceiling_destroy(strata_resource *resource)
{
    free(resource);
}

static const strata_resource_ops ceiling_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "ceiling",
    .allocate = ceiling_allocate,
    .deallocate = ceiling_deallocate,
    .destroy = ceiling_destroy,
};

static strata_status ceiling_create(int device, const void *options, strata_resource **out)
{
    ceiling *self = calloc(1, sizeof *self);
    if (!self)
        return strata_fail(STRATA_ERROR_OUT_OF_HOST_MEMORY, "ceiling: no host memory");
    self->resource.ops = &ceiling_ops;
    self->device = device;
    self->largest = ((const ceiling_options *)options)->largest;
    *out = &self->resource;
    return STRATA_SUCCESS;
}

static const strata_option ceiling_texts[] = {
    {"largest", STRATA_OPTION_SIZE, offsetof(ceiling_options, largest), NULL, "bytes that one block may have"},
};

static const strata_layer ceiling_layer = {
    .size = sizeof(strata_layer),
    .name = "ceiling",
    .help = "refuses blocks above a size, counts by tag",
    .options = ceiling_texts,
    .option_count = 1,
    .options_size = sizeof(ceiling_options),
    .create = ceiling_create,
};

/* ---- a program that uses it ---- */

static bool expect(bool right, const char *what)
{
    printf("%s: %s\n", what, right ? "yes" : "no");
    return right;
}

static bool use(strata_runtime *runtime, CUstream stream)
{
    ceiling *layer = (ceiling *)strata_stack_top(strata_runtime_stack(runtime));
    strata_request request = {.bytes = 1 << 20, .stream = stream};
    strata_block block, refused;
    if (strata_tag_intern("weights", &request.tag) != STRATA_SUCCESS ||
        strata_runtime_allocate_request(runtime, &request, &block) != STRATA_SUCCESS)
        return false;
    bool right = expect(*live_bytes(layer, request.tag) == block.bytes, "one block of weights is counted");
    request.bytes = 8 << 20;
    strata_status status = strata_runtime_allocate_request(runtime, &request, &refused);
    right &= expect(status == STRATA_ERROR_OUT_OF_BUDGET, strata_last_error()->message);
    right &= expect(strstr(strata_last_error()->message, "; 0 are free") == NULL, "the driver said what is free");
    right &=
        expect(strata_runtime_deallocate(runtime, &block) == STRATA_SUCCESS && *live_bytes(layer, request.tag) == 0,
               "nothing is left");
    return right;
}

int main(void)
{
    strata_runtime *runtime;
    CUstream stream;
    if (!cuda_open(&cu) || strata_layer_register(&ceiling_layer) != STRATA_SUCCESS ||
        strata_runtime_create(&(strata_runtime_config){.stack_text = "ceiling(largest=4MiB), async"}, &runtime) !=
            STRATA_SUCCESS ||
        strata_runtime_stream_acquire(runtime, &stream) != STRATA_SUCCESS) {
        fprintf(stderr, "%s\n", strata_last_error()->message);
        return EXIT_FAILURE;
    }
    cu.CtxSetCurrent(NULL); /* as on a thread that made no CUDA call before */
    bool right = use(runtime, stream);
    right &= strata_runtime_stream_release(runtime, stream) == STRATA_SUCCESS;
    right &= strata_runtime_destroy(runtime) == STRATA_SUCCESS;
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
