/* A stack from a text, so that a program's layers are a line of its configuration. The argument is the text. For
 * strata_runtime_get, the environment variable STRATA_STACK has the text. */
#include <stdio.h>
#include <stdlib.h>
#include <strata/strata.h>

static const size_t too_much = (size_t)2 << 30;

static void explain(const char *what)
{
    const strata_error *error = strata_last_error();
    printf("%s: %s\n  %s\n", what, strata_status_text(error->status), error->message);
}

/* A pool that may hold 1 GiB serves a small block and refuses one of 2 GiB. The error says why. */
static bool use(strata_runtime *runtime)
{
    strata_block block;
    CUstream stream;
    if (strata_runtime_stream_acquire(runtime, &stream) != STRATA_SUCCESS)
        return false;
    bool done = strata_runtime_allocate(runtime, 1 << 20, stream, &block) == STRATA_SUCCESS;
    if (done) {
        printf("%zu bytes at 0x%llx\n", block.bytes, (unsigned long long)block.address);
        done = strata_runtime_deallocate(runtime, &block) == STRATA_SUCCESS;
    }
    if (done && strata_runtime_allocate(runtime, too_much, stream, &block) == STRATA_SUCCESS)
        done = strata_runtime_deallocate(runtime, &block) == STRATA_SUCCESS;
    else if (done)
        explain("two gigabytes");
    strata_runtime_stream_release(runtime, stream);
    return done;
}

int main(int argc, char **argv)
{
    const char *text = argc > 1 ? argv[1] : "async(release_threshold=256MiB, max_size=1GiB)";
    strata_runtime *runtime;
    if (strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime) != STRATA_SUCCESS) {
        explain(text);
        return EXIT_FAILURE;
    }
    printf("the stack is: %s\n", strata_stack_text(strata_runtime_stack(runtime)));
    bool done = use(runtime);
    if (!done)
        explain("using the stack");
    if (strata_runtime_destroy(runtime) != STRATA_SUCCESS) {
        explain("ending the stack");
        return EXIT_FAILURE;
    }
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
