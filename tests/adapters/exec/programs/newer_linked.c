/* Linked to a function of a driver that is newer than Strata knows. */
#include "driver_calls.h"

int cuNewThing(int value);

int main(void)
{
    CUdeviceptr block;
    begin();
    CHECK(DRIVER(cuMemAlloc)(&block, 1 << 20));
    printf("thing %d\n", cuNewThing(4));
    return 0;
}
