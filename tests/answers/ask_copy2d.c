/* Questions about copies of rows: kinds of memory, pitches, offsets, ranges, and which calls wait. */
#include "ask.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PITCH = 512, WIDTH = 100, HEIGHT = 8, BYTES = PITCH * HEIGHT };

/* Sources and destinations of BYTES each. */
static struct {
    CUdeviceptr first;
    CUdeviceptr second;
    unsigned char *host;
    unsigned char *other;
    CUstream stream;
} at;

static CUDA_MEMCPY2D host_to_device(void)
{
    return (CUDA_MEMCPY2D){
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = at.host,
        .srcPitch = PITCH,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = at.first,
        .dstPitch = PITCH,
        .WidthInBytes = WIDTH,
        .Height = HEIGHT,
    };
}

static CUDA_MEMCPY2D device_to_host(void)
{
    return (CUDA_MEMCPY2D){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = at.first,
        .srcPitch = PITCH,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = at.other,
        .dstPitch = PITCH,
        .WidthInBytes = WIDTH,
        .Height = HEIGHT,
    };
}

static CUDA_MEMCPY2D device_to_device(void)
{
    return (CUDA_MEMCPY2D){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = at.first,
        .srcPitch = PITCH,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = at.second,
        .dstPitch = PITCH,
        .WidthInBytes = WIDTH,
        .Height = HEIGHT,
    };
}

/* The same copy by each of the three calls. */
static void ask_all(const CUDA_MEMCPY2D *copy, const char *name)
{
    ask(cu.Memcpy2D(copy), "copy_2d.%s", name);
    ask(cu.Memcpy2DUnaligned(copy), "copy_2d.%s.unaligned", name);
    ask(cu.Memcpy2DAsync(copy, at.stream), "copy_2d.%s.async", name);
    ask(cu.StreamSynchronize(at.stream), "copy_2d.%s.synchronize", name);
}

static void number_rows(void)
{
    for (size_t i = 0; i < BYTES; i++)
        at.host[i] = (unsigned char)(i / PITCH * 16 + i % PITCH % 13);
}

/* Whether `count` rows of `width` bytes are equal in two buffers. */
static bool same_rows(const unsigned char *a, size_t a_pitch, const unsigned char *b, size_t b_pitch, size_t width,
                      size_t count)
{
    for (size_t row = 0; row < count; row++) {
        if (memcmp(a + row * a_pitch, b + row * b_pitch, width) != 0)
            return false;
    }
    return true;
}

static void ask_bytes(void)
{
    number_rows();
    CUDA_MEMCPY2D copy = host_to_device();
    cu.MemsetD8(at.first, 0xee, BYTES);
    ask_all(&copy, "htod");
    cu.MemcpyDtoH(at.other, at.first, BYTES);
    ask_yes(same_rows(at.host, PITCH, at.other, PITCH, WIDTH, HEIGHT), "copy_2d.htod.bytes");
    ask_yes(at.other[WIDTH] == 0xee && at.other[PITCH - 1] == 0xee, "copy_2d.htod.leaves_the_rest");
    copy = device_to_device();
    copy.dstPitch = 128;
    ask_all(&copy, "dtod_to_narrower_pitch");
    cu.MemcpyDtoH(at.other, at.second, 128 * HEIGHT);
    ask_yes(same_rows(at.host, PITCH, at.other, 128, WIDTH, HEIGHT), "copy_2d.dtod_to_narrower_pitch.bytes");
    copy = device_to_host();
    copy.srcXInBytes = 10;
    copy.srcY = 2;
    copy.dstXInBytes = 3;
    copy.dstY = 1;
    copy.WidthInBytes = 20;
    copy.Height = 4;
    memset(at.other, 0, BYTES);
    ask_all(&copy, "dtoh_with_offsets");
    ask_yes(same_rows(at.host + 2 * PITCH + 10, PITCH, at.other + PITCH + 3, PITCH, 20, 4),
            "copy_2d.dtoh_with_offsets.bytes");
    ask_yes(at.other[PITCH + 2] == 0 && at.other[PITCH + 23] == 0, "copy_2d.dtoh_with_offsets.leaves_the_rest");
    copy = device_to_host();
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = at.host;
    memset(at.other, 0, BYTES);
    ask_all(&copy, "htoh");
    ask_yes(same_rows(at.host, PITCH, at.other, PITCH, WIDTH, HEIGHT), "copy_2d.htoh.bytes");
    copy = host_to_device();
    copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.srcDevice = (CUdeviceptr)(uintptr_t)at.host;
    copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.dstDevice = at.second;
    ask_all(&copy, "unified");
    cu.MemcpyDtoH(at.other, at.second, BYTES);
    ask_yes(same_rows(at.host, PITCH, at.other, PITCH, WIDTH, HEIGHT), "copy_2d.unified.bytes");
}

/* Where the rows go if the pitch is 0. */
static void ask_pitch_0(void)
{
    number_rows();
    CUDA_MEMCPY2D copy = host_to_device();
    copy.dstPitch = 0;
    cu.MemsetD8(at.first, 0xee, BYTES);
    ask(cu.Memcpy2D(&copy), "copy_2d.pitch_0.target");
    cu.MemcpyDtoH(at.other, at.first, BYTES);
    ask_yes(same_rows(at.host, PITCH, at.other, WIDTH, WIDTH, HEIGHT), "copy_2d.pitch_0.target.dense");
    copy = host_to_device();
    copy.dstPitch = 0;
    copy.dstXInBytes = 12;
    copy.dstY = 1;
    cu.MemsetD8(at.first, 0xee, BYTES);
    ask(cu.Memcpy2D(&copy), "copy_2d.pitch_0.target_offset");
    cu.MemcpyDtoH(at.other, at.first, BYTES);
    ask_yes(same_rows(at.host, PITCH, at.other + (WIDTH + 12) + 12, WIDTH + 12, WIDTH, HEIGHT),
            "copy_2d.pitch_0.target_offset.pitch_is_offset_and_width");
    ask_yes(same_rows(at.host, PITCH, at.other + WIDTH + 12, WIDTH, WIDTH, HEIGHT),
            "copy_2d.pitch_0.target_offset.pitch_is_width");
    copy = host_to_device();
    copy.srcPitch = 0;
    ask(cu.Memcpy2D(&copy), "copy_2d.pitch_0.source");
    cu.MemcpyDtoH(at.other, at.first, BYTES);
    ask_yes(same_rows(at.host, WIDTH, at.other, PITCH, WIDTH, HEIGHT), "copy_2d.pitch_0.source.dense");
}

static void ask_sizes(void)
{
    CUDA_MEMCPY2D copy = host_to_device();
    copy.WidthInBytes = 0;
    ask_all(&copy, "width_0");
    copy = host_to_device();
    copy.Height = 0;
    ask_all(&copy, "height_0");
    copy.dstDevice = 0;
    copy.srcHost = NULL;
    ask_all(&copy, "height_0.null");
    copy = host_to_device();
    copy.Height = 1;
    copy.srcPitch = 0;
    copy.dstPitch = 0;
    ask_all(&copy, "one_row.pitch_0");
    copy.dstXInBytes = 8;
    ask_all(&copy, "one_row.pitch_0.offset");
    copy = host_to_device();
    copy.srcPitch = 0;
    ask_all(&copy, "source_pitch_0");
    copy = host_to_device();
    copy.dstPitch = 0;
    ask_all(&copy, "target_pitch_0");
    copy = host_to_device();
    copy.dstPitch = WIDTH - 1;
    ask_all(&copy, "target_pitch_1_less");
    copy = host_to_device();
    copy.srcPitch = WIDTH - 1;
    ask_all(&copy, "source_pitch_1_less");
    copy = host_to_device();
    copy.Height = 1;
    copy.dstPitch = WIDTH - 1;
    ask_all(&copy, "one_row.target_pitch_1_less");
    copy = host_to_device();
    copy.dstPitch = WIDTH;
    copy.dstXInBytes = 1;
    ask_all(&copy, "offset_and_width_beyond_pitch");
    copy = device_to_device();
    copy.dstPitch = WIDTH + 3;
    ask_all(&copy, "dtod.odd_pitch");
    copy = device_to_device();
    copy.dstPitch = 0x80000000;
    copy.Height = 1;
    ask_all(&copy, "dtod.pitch_2_gib");
    copy = host_to_device();
    copy.WidthInBytes = SIZE_MAX;
    copy.srcPitch = SIZE_MAX;
    copy.dstPitch = SIZE_MAX;
    copy.Height = 1;
    ask_all(&copy, "width_size_max");
}

static void ask_wrong(void)
{
    CUDA_MEMCPY2D copy = host_to_device();
    ask(cu.Memcpy2D(NULL), "copy_2d.null");
    ask(cu.Memcpy2DUnaligned(NULL), "copy_2d.null.unaligned");
    ask(cu.Memcpy2DAsync(NULL, at.stream), "copy_2d.null.async");
    copy.srcMemoryType = (CUmemorytype)0;
    ask_all(&copy, "source_type_0");
    copy = host_to_device();
    copy.dstMemoryType = (CUmemorytype)99;
    ask_all(&copy, "target_type_99");
    copy = host_to_device();
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    ask_all(&copy, "target_null_array");
    copy = host_to_device();
    copy.srcHost = NULL;
    ask_all(&copy, "source_null");
    copy = host_to_device();
    copy.dstDevice = 0;
    ask_all(&copy, "target_0");
    copy = host_to_device();
    copy.dstDevice = 0x1000;
    ask_all(&copy, "target_foreign");
    copy = host_to_device();
    copy.dstDevice = (CUdeviceptr)(uintptr_t)at.other;
    ask_all(&copy, "target_device_is_host_memory");
    copy = host_to_device();
    copy.srcHost = (const void *)(uintptr_t)at.second;
    ask_all(&copy, "source_host_is_device_memory");
    copy = device_to_device();
    copy.dstDevice = at.first + 8;
    ask_all(&copy, "dtod.overlapping");
    copy = device_to_device();
    copy.dstDevice = at.first;
    ask_all(&copy, "dtod.onto_itself");
}

/* The last row ends at the end of the memory, or exceeds it. */
static void ask_ends(void)
{
    CUDA_MEMCPY2D copy = host_to_device();
    copy.dstXInBytes = PITCH - WIDTH;
    ask_all(&copy, "last_row_ends_with_memory");
    copy.dstDevice = at.first + 1;
    ask_all(&copy, "last_row_1_past");
    copy = host_to_device();
    copy.dstY = 1;
    ask_all(&copy, "a_row_past");
    copy = host_to_device();
    copy.dstDevice = at.first + PITCH - WIDTH;
    ask_all(&copy, "padding_past_the_end");
    copy = device_to_device();
    copy.srcY = 1;
    ask_all(&copy, "dtod.source_a_row_past");
}

static void ask_3d(void)
{
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = at.host,
        .srcPitch = 64,
        .srcHeight = 4,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = at.first,
        .dstPitch = 128,
        .dstHeight = 6,
        .WidthInBytes = 50,
        .Height = 3,
        .Depth = 2,
    };
    number_rows();
    ask(cu.Memcpy3D(&copy), "copy_3d.htod");
    cu.MemcpyDtoH(at.other, at.first, BYTES);
    ask_yes(same_rows(at.host, 64, at.other, 128, 50, 3) &&
                same_rows(at.host + 64 * 4, 64, at.other + 128 * 6, 128, 50, 3),
            "copy_3d.htod.bytes");
    ask(cu.Memcpy3DAsync(&copy, at.stream), "copy_3d.htod.async");
    ask(cu.StreamSynchronize(at.stream), "copy_3d.htod.synchronize");
    copy.Depth = 0;
    ask(cu.Memcpy3D(&copy), "copy_3d.depth_0");
    copy.Depth = 2;
    copy.dstHeight = 2;
    ask(cu.Memcpy3D(&copy), "copy_3d.target_height_1_less");
    copy.dstHeight = 0;
    ask(cu.Memcpy3D(&copy), "copy_3d.target_height_0");
    copy.dstHeight = 6;
    copy.dstPitch = 49;
    ask(cu.Memcpy3D(&copy), "copy_3d.target_pitch_1_less");
    copy.dstPitch = 128;
    copy.srcLOD = 1;
    ask(cu.Memcpy3D(&copy), "copy_3d.source_lod_1");
    copy.srcLOD = 0;
    copy.dstZ = 100;
    ask(cu.Memcpy3D(&copy), "copy_3d.past_the_end");
    ask(cu.Memcpy3D(NULL), "copy_3d.null");
}

static void prepare(void)
{
    start();
    at.stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(at.stream);
    at.first = new_memory(BYTES);
    at.second = new_memory(BYTES);
    at.host = calloc(4, BYTES);
    at.other = calloc(4, BYTES);
}

void ask_copies_2d(void)
{
    prepare();
    CUdeviceptr pitched = 0;
    size_t pitch = 0;
    CUresult result = cu.MemAllocPitch(&pitched, &pitch, WIDTH, HEIGHT, 4);
    ask_value(result, (long long)pitch, "copy_2d.pitch_of_100");
    ask_bytes();
    ask_pitch_0();
    ask_sizes();
    ask_wrong();
    ask_ends();
    ask_3d();
    ask(cu.CtxSynchronize(), "copy_2d.context_is_usable");
}

void ask_copy_2d_waits(void)
{
    static const struct {
        const char *name;
        CUDA_MEMCPY2D (*make)(void);
    } copies[] = {{"htod", host_to_device}, {"dtoh", device_to_host}, {"dtod", device_to_device}};
    prepare();
    CUstream blocking = new_stream(CU_STREAM_DEFAULT);
    warm_up(blocking);
    for (size_t i = 0; i < 3; i++) {
        CUDA_MEMCPY2D copy = copies[i].make();
        cu.Memcpy2D(&copy);
        cu.Memcpy2DAsync(&copy, at.stream);
        cu.CtxSynchronize();
        struct gate *gate = gate_hold(blocking, GATE_SHORT_MS);
        cu.Memcpy2D(&copy);
        ask_yes(!gate_release(gate), "copy_2d_waits.%s.blocking_held", copies[i].name);
        cu.CtxSynchronize();
        gate = gate_hold(at.stream, GATE_SHORT_MS);
        cu.Memcpy2DAsync(&copy, at.stream);
        ask_yes(!gate_release(gate), "copy_2d_waits.%s.async_held", copies[i].name);
        cu.CtxSynchronize();
    }
}
