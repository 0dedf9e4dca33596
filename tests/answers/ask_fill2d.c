/* Questions about fills of rows: element sizes, pitches, empty, misaligned and out of range fills, by the synchronous
 * call and the asynchronous one. */
#include "ask.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PITCH = 512, WIDTH = 25, HEIGHT = 8, BYTES = PITCH * HEIGHT };

static CUstream stream;

static void ask_8(CUdeviceptr rows, size_t pitch, size_t width, size_t height, const char *name)
{
    ask(cu.MemsetD2D8(rows, pitch, 0x5a, width, height), "fill_2d.%s.d8", name);
    ask(cu.MemsetD2D8Async(rows, pitch, 0x5a, width, height, stream), "fill_2d.%s.d8_async", name);
    ask(cu.StreamSynchronize(stream), "fill_2d.%s.d8.synchronize", name);
}

static void ask_16(CUdeviceptr rows, size_t pitch, size_t width, size_t height, const char *name)
{
    ask(cu.MemsetD2D16(rows, pitch, 0x1234, width, height), "fill_2d.%s.d16", name);
    ask(cu.MemsetD2D16Async(rows, pitch, 0x1234, width, height, stream), "fill_2d.%s.d16_async", name);
    ask(cu.StreamSynchronize(stream), "fill_2d.%s.d16.synchronize", name);
}

static void ask_32(CUdeviceptr rows, size_t pitch, size_t width, size_t height, const char *name)
{
    ask(cu.MemsetD2D32(rows, pitch, 0x12345678, width, height), "fill_2d.%s.d32", name);
    ask(cu.MemsetD2D32Async(rows, pitch, 0x12345678, width, height, stream), "fill_2d.%s.d32_async", name);
    ask(cu.StreamSynchronize(stream), "fill_2d.%s.d32.synchronize", name);
}

/* Whether each row begins with `width` bytes of the element, and nothing else was written. */
static bool filled(CUdeviceptr rows, unsigned char *seen, const void *element, size_t size, size_t width)
{
    cu.MemcpyDtoH(seen, rows, BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        size_t column = i % PITCH;
        unsigned char want = column < width * size ? ((const unsigned char *)element)[column % size] : 0xee;
        if (seen[i] != want)
            return false;
    }
    return true;
}

static void ask_bytes(CUdeviceptr rows, unsigned char *seen)
{
    const unsigned char byte = 0x5a;
    const unsigned short half = 0x1234;
    const unsigned word = 0x12345678;
    cu.MemsetD8(rows, 0xee, BYTES);
    ask_8(rows, PITCH, WIDTH, HEIGHT, "rows");
    ask_yes(filled(rows, seen, &byte, sizeof byte, WIDTH), "fill_2d.rows.d8.bytes");
    cu.MemsetD8(rows, 0xee, BYTES);
    ask_16(rows, PITCH, WIDTH, HEIGHT, "rows");
    ask_yes(filled(rows, seen, &half, sizeof half, WIDTH), "fill_2d.rows.d16.bytes");
    cu.MemsetD8(rows, 0xee, BYTES);
    ask_32(rows, PITCH, WIDTH, HEIGHT, "rows");
    ask_yes(filled(rows, seen, &word, sizeof word, WIDTH), "fill_2d.rows.d32.bytes");
}

static void ask_shapes(CUdeviceptr rows)
{
    ask_8(rows, PITCH, 0, HEIGHT, "width_0");
    ask_8(rows, PITCH, WIDTH, 0, "height_0");
    ask_8(0, PITCH, 0, HEIGHT, "width_0.address_0");
    ask_8(0, PITCH, WIDTH, 0, "height_0.address_0");
    ask_8(rows, 0, WIDTH, 1, "one_row.pitch_0");
    ask_8(rows, 0, WIDTH, HEIGHT, "pitch_0");
    ask_8(rows, WIDTH, WIDTH, HEIGHT, "pitch_is_width");
    ask_8(rows, WIDTH - 1, WIDTH, HEIGHT, "pitch_1_less");
    ask_8(rows, WIDTH - 1, WIDTH, 1, "one_row.pitch_1_less");
    ask_16(rows, 2 * WIDTH - 2, WIDTH, HEIGHT, "pitch_2_less");
    ask_16(rows, 2 * WIDTH + 1, WIDTH, HEIGHT, "odd_pitch");
    ask_16(rows, 2 * WIDTH + 1, WIDTH, 1, "one_row.odd_pitch");
    ask_32(rows, 4 * WIDTH + 2, WIDTH, HEIGHT, "pitch_off_by_2");
    ask_16(rows + 1, PITCH, WIDTH, HEIGHT - 1, "address_off_by_1");
    ask_32(rows + 2, PITCH, WIDTH, HEIGHT - 1, "address_off_by_2");
    ask_16(rows + 1, PITCH, 0, HEIGHT, "width_0.address_off_by_1");
}

/* The last row ends at the end of the memory, or exceeds it. */
static void ask_ends(CUdeviceptr rows)
{
    ask_8(rows + PITCH - WIDTH, PITCH, WIDTH, HEIGHT, "last_row_ends_with_memory");
    ask_8(rows + PITCH - WIDTH + 1, PITCH, WIDTH, HEIGHT, "last_row_1_past");
    ask_8(rows, PITCH, WIDTH, HEIGHT + 1, "a_row_past");
    ask_32(rows, PITCH, PITCH / 4, HEIGHT, "all_of_it");
    ask_32(rows, PITCH, PITCH / 4, HEIGHT + 1, "all_of_it_and_a_row");
    ask_8(rows, SIZE_MAX, WIDTH, 1, "one_row.pitch_size_max");
    ask_8(0x1000, PITCH, WIDTH, HEIGHT, "foreign");
    ask_8(0, PITCH, WIDTH, HEIGHT, "address_0");
}

void ask_fills_2d(void)
{
    start();
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    CUdeviceptr rows = new_memory(BYTES);
    unsigned char *seen = calloc(1, BYTES);
    ask_bytes(rows, seen);
    ask_shapes(rows);
    ask_ends(rows);
    ask_8(rows, PITCH, WIDTH, HEIGHT, "after");
    free(seen);
}
