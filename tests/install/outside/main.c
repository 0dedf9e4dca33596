/* An outside program in C: checks the installed library's version against its package, and allocates and frees a block.
 */
#include <stdio.h>
#include <strata/strata.h>
#include <string.h>

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strata_last_error()->message);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], strata_version_string()) != 0) {
        fprintf(stderr, "the library says that it is version %s\n", strata_version_string());
        return 1;
    }
    strata_runtime *runtime;
    if (strata_runtime_get(0, &runtime) != STRATA_SUCCESS)
        return failed("strata_runtime_get");
    strata_block block;
    if (strata_runtime_allocate(runtime, 1 << 20, NULL, &block) != STRATA_SUCCESS)
        return failed("strata_runtime_allocate");
    if (block.address == 0 || block.bytes < 1 << 20)
        return failed("a block of no use");
    if (strata_runtime_deallocate_on(runtime, &block, NULL) != STRATA_SUCCESS)
        return failed("strata_runtime_deallocate_on");
    return 0;
}
