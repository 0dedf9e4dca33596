/* Green contexts, on a driver that has them (wider_driver.c), by name: `green NAME`. */
#include "wider_calls.h"

static CUgreenCtx green;

static int is_active(void)
{
    unsigned flags;
    int active = 0;
    CHECK(DRIVER(cuDevicePrimaryCtxGetState)(0, &flags, &active));
    return active;
}

/* The green context holds the primary one, and its memory. */
static void release_before_it(void)
{
    WIDER(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040);
    CUdeviceptr block;
    unsigned char byte = 0;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemsetD8)(block, 7, MIB));
    CHECK(DRIVER(cuDevicePrimaryCtxRelease)(0));
    printf("active: %d", is_active());
    CHECK(DRIVER(cuMemcpyDtoH)(&byte, block + MIB - 1, 1));
    printf(", read %d\n", byte);
    CHECK(cuGreenCtxDestroy_found(green));
    printf("active: %d, another release gave %d\n", is_active(), DRIVER(cuDevicePrimaryCtxRelease)(0));
}

static const struct {
    const char *name;
    void (*run)(void);
} ways[] = {
    {"release", release_before_it},
};

int main(int count, char **arguments)
{
    WIDER(cuGreenCtxCreate, "cuGreenCtxCreate", 12040);
    begin();
    CHECK(cuGreenCtxCreate_found(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    for (size_t i = 0; count > 1 && i < sizeof ways / sizeof ways[0]; i++)
        if (strcmp(ways[i].name, arguments[1]) == 0) {
            ways[i].run();
            return 0;
        }
    printf("unknown way\n");
    return 3;
}
