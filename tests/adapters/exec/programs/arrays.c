/* Arrays, on a driver that has them (wider_driver.c): of 16-bit channels, and layers in levels. */
#include "wider_calls.h"

int main(int count, char **arguments)
{
    WIDER(cuArrayCreate_v2, "cuArrayCreate", 12000);
    WIDER(cuArrayDestroy, "cuArrayDestroy", 12000);
    WIDER(cuArray3DCreate_v2, "cuArray3DCreate", 12000);
    WIDER(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 12000);
    WIDER(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 12000);
    const CUDA_ARRAY_DESCRIPTOR plain = {
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_UNORM_INT16X4, .NumChannels = 4}; /* 8 MiB */
    const CUDA_ARRAY3D_DESCRIPTOR layers = {.Width = 256,                                       /* 4 MiB, and 1 MiB */
                                            .Height = 256,
                                            .Depth = 16,
                                            .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                            .NumChannels = 4,
                                            .Flags = CUDA_ARRAY3D_LAYERED};
    const CUDA_ARRAY3D_DESCRIPTOR solid = {.Width = 128, /* 8 MiB, and 1 MiB */
                                           .Height = 128,
                                           .Depth = 128,
                                           .Format = CU_AD_FORMAT_FLOAT,
                                           .NumChannels = 1};
    CUarray array;
    CUmipmappedArray levels;
    CUdeviceptr block;
    begin();
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(cuArrayCreate_v2_found(&array, &plain));
    CHECK(cuMipmappedArrayCreate_found(&levels, &layers, 2));
    CHECK(cuMipmappedArrayCreate_found(&levels, &solid, 2));
    printf("made, and not ended: %d\n", cuArrayDestroy_found((CUarray)(void *)levels)); /* by another function */
    if (count > 1 && strcmp(arguments[1], "ended") == 0) {
        CUarray cubes;
        CHECK(cuArray3DCreate_v2_found(&cubes, &solid)); /* one level: 8 MiB */
        CHECK(cuArrayDestroy_found(cubes));
        CHECK(cuMipmappedArrayDestroy_found(levels));
        CHECK(cuArrayDestroy_found(array));
    }
    return 0;
}
