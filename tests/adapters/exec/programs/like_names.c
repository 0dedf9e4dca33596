/* A library that is no driver, with names that are like the driver's, and are its own. */
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuSomething(void);
EXPORT int cuMemAllocate(void);
EXPORT int cudnnCreate(void);
EXPORT const int cuTable[2] = {1, 2};
EXPORT const void *own_address(const char *name);

int cuSomething(void)
{
    return 1;
}

int cuMemAllocate(void)
{
    return 2;
}

int cudnnCreate(void)
{
    return 3;
}

const void *own_address(const char *name)
{
    int (*const functions[])(void) = {cuSomething, cuMemAllocate, cudnnCreate};
    static const char *const names[] = {"cuSomething", "cuMemAllocate", "cudnnCreate"};
    const void *address = cuTable;
    for (int i = 0; i < 3; i++)
        if (strcmp(names[i], name) == 0)
            memcpy(&address, &functions[i], sizeof address);
    return address;
}
