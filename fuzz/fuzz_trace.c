/* Trace readers. The input is a file, plain or gzip, of any kind that tools/trace/trace.h reads.
 *
 * It is read as it is, and compressed, with the same result. A trace is compared with an independent count, then
 * written as Strata's CSV and read again: all but lines and names must be equal. */
#include "fuzz/begin.h"

#include "tools/trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

static int file = -1; /* in memory; inputs are written here first */
static char path[64];

static void put_bytes(const void *bytes, size_t size)
{
    assert_int_equal(ftruncate(file, 0), 0);
    assert_true(pwrite(file, bytes, size, 0) == (ssize_t)size);
}

static void put_compressed(const void *bytes, size_t size)
{
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    uLong room = deflateBound(&stream, (uLong)size);
    unsigned char *packed = malloc(room);
    assert_non_null(packed);
    stream.next_in = (unsigned char *)(uintptr_t)bytes;
    stream.avail_in = (uInt)size;
    stream.next_out = packed;
    stream.avail_out = (uInt)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    put_bytes(packed, stream.total_out);
    assert_int_equal(deflateEnd(&stream), Z_OK);
    free(packed);
}

/* ---- what must hold for a trace that was read ---- */

typedef struct account {
    uint64_t live_bytes, peak;
    uint32_t live, blocks, streams;
    uint32_t *last_row; /* of each block so far */
    bool *freed;
    uint32_t added; /* frees that the log lacks */
} account;

/* Streams are numbered in the order of their first use. */
static void record_stream(account *so_far, uint32_t stream)
{
    assert_true(stream <= so_far->streams);
    so_far->streams += stream == so_far->streams;
}

static void record_alloc(account *so_far, const trace *whole, uint32_t which)
{
    const trace_row *row = &whole->rows[which];
    const trace_block *block = &whole->blocks[row->block];
    assert_true(row->block == so_far->blocks && row->previous == TRACE_NONE && block->alloc_row == which);
    so_far->blocks++;
    so_far->live++;
    so_far->live_bytes += block->bytes;
    assert_true(so_far->live_bytes >= block->bytes);
    so_far->peak = so_far->live_bytes > so_far->peak ? so_far->live_bytes : so_far->peak;
    so_far->last_row[row->block] = which;
}

static void record_touch(account *so_far, const trace *whole, uint32_t which)
{
    const trace_row *row = &whole->rows[which];
    assert_true(row->block < so_far->blocks && !so_far->freed[row->block]);
    assert_true(row->previous == so_far->last_row[row->block]);
    so_far->last_row[row->block] = which;
    if (row->op == TRACE_USE) {
        assert_true(row->access >= STRATA_ACCESS_READ && row->access <= STRATA_ACCESS_READ_WRITE);
        return;
    }
    so_far->freed[row->block] = true;
    so_far->live--;
    so_far->live_bytes -= whole->blocks[row->block].bytes;
}

static void record_row(account *so_far, const trace *whole, uint32_t which)
{
    const trace_row *row = &whole->rows[which], *before = which ? row - 1 : NULL;
    /* A free that the log lacks is added, with the line of the allocation that needs it. */
    const bool added = before && row->op == TRACE_ALLOC && before->op == TRACE_FREE && row->line == before->line;
    assert_true(row->op <= TRACE_SYNC);
    assert_true(row->line >= 2 && (!before || added || row->line > before->line));
    so_far->added += added;
    record_stream(so_far, row->stream);
    if (row->op == TRACE_ALLOC) {
        record_alloc(so_far, whole, which);
    } else if (row->op == TRACE_WAIT) {
        record_stream(so_far, row->producer);
        assert_true(row->producer != row->stream && row->previous == TRACE_NONE);
    } else if (row->op == TRACE_SYNC) {
        assert_true(row->previous == TRACE_NONE);
    } else {
        record_touch(so_far, whole, which);
    }
}

static void check_trace(const trace *whole)
{
    account so_far = {
        .last_row = calloc(whole->block_count + 1u, sizeof(uint32_t)),
        .freed = calloc(whole->block_count + 1u, sizeof(bool)),
    };
    assert_true(so_far.last_row && so_far.freed && whole->row_count > 0);
    assert_true(whole->rows[0].time_us == 0 && whole->stream_count <= TRACE_STREAM_LIMIT);
    for (uint32_t i = 0; i < whole->row_count; i++)
        record_row(&so_far, whole, i);
    for (uint32_t i = 0; i < whole->block_count; i++)
        assert_true(whole->blocks[i].freed == so_far.freed[i] && whole->blocks[i].last_row == so_far.last_row[i]);
    assert_true(so_far.blocks == whole->block_count && so_far.streams == whole->stream_count);
    assert_true(so_far.added == whole->recorded_unfreed);
    assert_true(so_far.live == whole->live_at_end && so_far.peak == whole->peak_live_bytes);
    free(so_far.last_row);
    free(so_far.freed);
}

static void check_same(const trace *a, const trace *b)
{
    assert_true(a->row_count == b->row_count && a->block_count == b->block_count);
    assert_true(a->stream_count == b->stream_count && a->live_at_end == b->live_at_end);
    assert_true(a->peak_live_bytes == b->peak_live_bytes);
    for (uint32_t i = 0; i < a->row_count; i++) {
        const trace_row *one = &a->rows[i], *other = &b->rows[i];
        assert_true(one->op == other->op && one->stream == other->stream && one->block == other->block);
        assert_true(one->previous == other->previous && one->access == other->access);
        assert_true(one->time_us == other->time_us);
    }
    for (uint32_t i = 0; i < a->block_count; i++)
        assert_true(a->blocks[i].id == b->blocks[i].id && a->blocks[i].bytes == b->blocks[i].bytes);
}

/* ---- writing a trace ---- */

static void write_row(FILE *to, const trace *whole, const trace_row *row)
{
    static const char *const accesses[] = {"", "read", "write", "read_write"};
    bool names_block = row->op != TRACE_WAIT && row->op != TRACE_SYNC;
    const trace_block *block = names_block ? &whole->blocks[row->block] : NULL;
    fprintf(to, "%s,%" PRIu64 ",%" PRIu64 ",%" PRIu32 ",%" PRIu64 ",%s\n", trace_op_name(row->op),
            block                   ? block->id
            : row->op == TRACE_WAIT ? row->producer
                                    : 0,
            block ? block->bytes : 0, row->stream, row->time_us, row->op == TRACE_USE ? accesses[row->access] : "");
}

static void check_written_and_read_again(const trace *whole)
{
    char *text;
    size_t length;
    FILE *to = open_memstream(&text, &length);
    assert_non_null(to);
    fputs("op,id,bytes,stream,time_us,access\n", to);
    for (uint32_t i = 0; i < whole->row_count; i++)
        write_row(to, whole, &whole->rows[i]);
    assert_int_equal(fclose(to), 0);
    put_bytes(text, length);
    free(text);
    trace again;
    trace_problem problem;
    if (!trace_read(path, &again, &problem))
        fail_msg("a trace that was written cannot be read: %s", problem.text);
    check_same(whole, &again);
    assert_true(again.recorded_failures == 0);
    trace_free(&again);
}

/* ---- the target ---- */

static bool read_and_check(trace *out, trace_problem *problem)
{
    problem->text[0] = '\0';
    if (trace_read(path, out, problem)) {
        check_trace(out);
        return true;
    }
    assert_true(strncmp(problem->text, path, strlen(path)) == 0);
    assert_null(out->path);
    assert_null(out->rows);
    assert_null(out->blocks);
    return false;
}

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    assert_true(setenv("CMOCKA_TEST_ABORT", "1", 1) == 0);
    file = memfd_create("trace", 0);
    assert_true(file >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    trace plain, packed;
    trace_problem why, why_packed;
    bool is_packed_already = size >= 2 && data[0] == 0x1f && data[1] == 0x8b;
    put_bytes(data, size);
    bool read = read_and_check(&plain, &why);
    if (!is_packed_already && size > 0) {
        put_compressed(data, size);
        assert_int_equal(read_and_check(&packed, &why_packed), read);
        if (read)
            check_same(&plain, &packed);
        else
            assert_string_equal(why.text, why_packed.text);
        trace_free(&packed);
    }
    if (read)
        check_written_and_read_again(&plain);
    trace_free(&plain);
    return 0;
}
