/* Reading traces: what is accepted and what it means, and that everything malformed is refused with file and line. */
#include "support/replay.h"

#include "tools/trace/trace.h"

#include <inttypes.h>
#include <zlib.h>

static trace read_text(const char *text)
{
    scratch_file file = scratch_write(text);
    trace out;
    trace_problem problem = {.text = ""};
    bool read = trace_read(file.path, &out, &problem);
    if (!read)
        print_error("%s\n", problem.text);
    scratch_remove(&file);
    assert_true(read);
    return out;
}

/* The file is refused, and the reason begins with its path and `line` and says `words`. */
static void assert_refused_bytes(const void *bytes, size_t length, uint32_t line, const char *words)
{
    scratch_file file = scratch_write_bytes(bytes, length);
    trace out;
    trace_problem problem = {.text = ""};
    bool read = trace_read(file.path, &out, &problem);
    char start[96];
    snprintf(start, sizeof start, "%s:%" PRIu32 ": ", file.path, line);
    bool names_line = strncmp(problem.text, start, strlen(start)) == 0;
    bool says_why = strstr(problem.text, words) != NULL;
    if (read || !names_line || !says_why)
        print_error("expected \"%s...%s\", got \"%s\"\n", start, words, read ? "success" : problem.text);
    scratch_remove(&file);
    assert_false(read);
    assert_true(names_line);
    assert_true(says_why);
    assert_null(out.rows);
    assert_null(out.path);
}

static void assert_refused(const char *text, uint32_t line, const char *words)
{
    assert_refused_bytes(text, strlen(text), line, words);
}

static void what_is_malformed_is_shown_and_not_obeyed(void **state)
{
    (void)state;
    assert_refused(TRACE_HEADER "al\033[2Jloc,0,1000,0,0\n", 2, "op is \"al\\x1b[2Jloc\"");
}

static void a_byte_order_mark_is_skipped(void **state)
{
    (void)state;
    trace read = read_text("\xef\xbb\xbf" TRACE_HEADER "alloc,7,512,3,100\n");
    assert_int_equal(read.row_count, 1);
    trace_free(&read);
    assert_refused(TRACE_HEADER "\xef\xbb\xbf"
                                "alloc,7,512,3,100\n",
                   2, "op is");
    assert_refused("\xef\xbb\xbf", 1, "expected one of the headers");
}

static void rows_blocks_and_streams_are_read(void **state)
{
    (void)state;
    trace read = read_text(TRACE_HEADER "alloc,7,512,3,100\n"
                                        "alloc,8,1024,5,130\n"
                                        "use,7,512,5,140\n"
                                        "wait,3,0,5,150\n"
                                        "free,7,512,3,160\n"
                                        "sync,0,0,5,170\n");
    assert_int_equal(read.row_count, 6);
    assert_int_equal(read.block_count, 2);
    assert_int_equal(read.stream_count, 2);
    assert_int_equal(read.live_at_end, 1);
    assert_int_equal(read.peak_live_bytes, 1536);
    assert_int_equal(read.rows[0].time_us, 0);
    assert_int_equal(read.rows[4].time_us, 60);
    assert_int_equal(read.rows[4].line, 6);
    assert_int_equal(read.rows[2].op, TRACE_USE);
    assert_int_equal(read.rows[2].access, STRATA_ACCESS_READ);
    assert_int_equal(read.rows[2].stream, 1);
    assert_int_equal(read.rows[2].previous, 0);
    assert_int_equal(read.rows[3].op, TRACE_WAIT);
    assert_int_equal(read.rows[3].producer, 0);
    assert_int_equal(read.rows[3].stream, 1);
    assert_int_equal(read.rows[4].previous, 2);
    assert_int_equal(read.rows[5].op, TRACE_SYNC);
    assert_int_equal(read.rows[5].stream, 1);
    assert_true(read.rows[5].previous == TRACE_NONE);
    assert_true(read.blocks[0].freed);
    assert_false(read.blocks[1].freed);
    assert_int_equal(read.blocks[0].id, 7);
    trace_free(&read);
}

static void a_last_line_needs_no_line_end_and_lines_may_end_as_on_windows(void **state)
{
    (void)state;
    trace read = read_text("op,id,bytes,stream,time_us\r\nalloc,1,4,0,0\r\nfree,1,4,0,1");
    assert_int_equal(read.row_count, 2);
    trace_free(&read);
}

static void an_id_may_be_allocated_again_after_its_free(void **state)
{
    (void)state;
    trace read = read_text(TRACE_HEADER "alloc,1,4,0,0\nfree,1,4,0,1\nalloc,1,8,0,2\nfree,1,8,0,3\n");
    assert_int_equal(read.block_count, 2);
    assert_int_equal(read.blocks[1].bytes, 8);
    assert_int_equal(read.rows[3].block, 1);
    assert_int_equal(read.rows[3].previous, 2);
    trace_free(&read);
}

static void a_use_says_how_it_touches_the_block(void **state)
{
    (void)state;
    trace read = read_text("op,id,bytes,stream,time_us,access\n"
                           "alloc,1,4,0,0,\n"
                           "use,1,4,0,0,write\n"
                           "use,1,4,0,0,read_write\n"
                           "use,1,4,0,0,read\n"
                           "use,1,4,0,0,\n");
    assert_int_equal(read.rows[1].access, STRATA_ACCESS_WRITE);
    assert_int_equal(read.rows[2].access, STRATA_ACCESS_READ_WRITE);
    assert_int_equal(read.rows[3].access, STRATA_ACCESS_READ);
    assert_int_equal(read.rows[4].access, STRATA_ACCESS_READ);
    trace_free(&read);
}

static void many_ids_are_told_apart(void **state)
{
    (void)state;
    enum { IDS = 30000 };
    text_builder text;
    text_begin(&text);
    fputs(TRACE_HEADER, text.stream);
    for (uint64_t i = 0; i < IDS; i++)
        fprintf(text.stream, "alloc,%" PRIu64 ",%" PRIu64 ",0,0\n", i << 32, i + 1);
    for (uint64_t i = IDS; i-- > 0;)
        fprintf(text.stream, "free,%" PRIu64 ",%" PRIu64 ",0,0\n", i << 32, i + 1);
    scratch_file file = text_end_as_file(&text);
    trace read;
    trace_problem problem;
    bool good = trace_read(file.path, &read, &problem);
    scratch_remove(&file);
    assert_true(good);
    assert_int_equal(read.block_count, IDS);
    assert_int_equal(read.live_at_end, 0);
    assert_int_equal(read.rows[IDS].block, IDS - 1);
    trace_free(&read);
}

static void malformed_traces_are_refused_with_file_and_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t line;
        const char *words;
    } wrong[] = {
        {"", 1, "the file is empty"},
        {"\n", 1, "headers"},
        {"alloc,0,1,0,0\n", 1, "headers"},
        {"op,id,bytes,stream\nalloc,0,1,0\n", 1, "headers"},
        {TRACE_HEADER, 2, "no operation"},
        {TRACE_HEADER "alloc,0,1,0,0\n\n", 3, "empty line"},
        {TRACE_HEADER "malloc,0,1,0,0\n", 2, "op is \"malloc\""},
        {TRACE_HEADER ",0,1,0,0\n", 2, "op is \"\""},
        {TRACE_HEADER "ALLOC,0,1,0,0\n", 2, "op is \"ALLOC\""},
        {TRACE_HEADER "alloc,0,1,0\n", 2, "4 columns: expected 5"},
        {TRACE_HEADER "alloc,0,1,0,0,read\n", 2, "6 columns: expected 5"},
        {TRACE_HEADER "alloc,0,1,0,0,,,,,,,,\n", 2, "13 columns"},
        {TRACE_HEADER "alloc\n", 2, "1 columns"},
        {TRACE_HEADER "alloc,,1,0,0\n", 2, "id is missing"},
        {TRACE_HEADER "alloc,0,,0,0\n", 2, "bytes is missing"},
        {TRACE_HEADER "alloc,x,1,0,0\n", 2, "id is \"x\""},
        {TRACE_HEADER "alloc,0,-1,0,0\n", 2, "bytes is \"-1\""},
        {TRACE_HEADER "alloc,0,+1,0,0\n", 2, "bytes is \"+1\""},
        {TRACE_HEADER "alloc,0, 1,0,0\n", 2, "bytes is \" 1\""},
        {TRACE_HEADER "alloc,0,1.5,0,0\n", 2, "bytes is \"1.5\""},
        {TRACE_HEADER "alloc,0,0x10,0,0\n", 2, "bytes is \"0x10\""},
        {TRACE_HEADER "alloc,0,1,s,0\n", 2, "stream is \"s\""},
        {TRACE_HEADER "alloc,0,1,0,now\n", 2, "time_us is \"now\""},
        {TRACE_HEADER "alloc,0,18446744073709551616,0,0\n", 2, "expected at most 64 bits"},
        {TRACE_HEADER "alloc,99999999999999999999999,1,0,0\n", 2, "expected at most 64 bits"},
        {TRACE_HEADER "alloc,0,18446744073709551615,0,0\nalloc,1,1,0,0\n", 3, "live bytes exceed 64 bits"},
        {TRACE_HEADER "free,4,1,0,0\n", 2, "free of id 4, which was never allocated"},
        {TRACE_HEADER "use,4,1,0,0\n", 2, "use of id 4, which was never allocated"},
        {TRACE_HEADER "alloc,4,1,0,0\nfree,4,1,0,0\nfree,4,1,0,0\n", 4, "which was freed on line 3"},
        {TRACE_HEADER "alloc,4,1,0,0\nfree,4,1,0,0\nuse,4,1,0,0\n", 4, "which was freed on line 3"},
        {TRACE_HEADER "alloc,4,1,0,0\nalloc,4,1,0,0\n", 3, "allocated twice, it is live since line 2"},
        {TRACE_HEADER "alloc,4,1,0,0\nfree,4,2,0,0\n", 3, "with 2 bytes; 1 were allocated on line 2"},
        {TRACE_HEADER "alloc,4,1,0,0\nuse,4,2,0,0\n", 3, "with 2 bytes"},
        {TRACE_HEADER "wait,1,8,0,0\n", 2, "expected 0 for a wait"},
        {TRACE_HEADER "wait,1,0,1,0\n", 2, "waits for itself"},
        {TRACE_HEADER "sync,0,8,1,0\n", 2, "expected 0 for a sync"},
        {TRACE_HEADER "sync,1,0,1,0\n", 2, "id is 1: expected 0 for a sync"},
        {TRACE_HEADER "wait,01,0,1,0\n", 2, "waits for itself"},
        {"op,id,bytes,stream,time_us,access\nalloc,0,1,0,0\n", 2, "5 columns: expected 6"},
        {"op,id,bytes,stream,time_us,access\nalloc,0,1,0,0,read\n", 2, "only a use has one"},
        {"op,id,bytes,stream,time_us,access\nalloc,0,1,0,0,\nuse,0,1,0,0,look\n", 3, "access is \"look\""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_refused(wrong[i].text, wrong[i].line, wrong[i].words);
}

static void a_line_that_is_too_long_or_holds_a_zero_byte_is_refused(void **state)
{
    (void)state;
    char text[4096];
    strcpy(text, TRACE_HEADER "alloc,");
    memset(text + strlen(text), '1', 3000);
    strcpy(text + strlen(TRACE_HEADER) + 6 + 3000, ",1,0,0\n");
    assert_refused(text, 2, "longer than");

    static const char zero[] = TRACE_HEADER "alloc,0,1,0,0\nalloc,1\0,1,0,0\n";
    assert_refused_bytes(zero, sizeof zero - 1, 3, "zero byte");
}

static void a_file_that_cannot_be_read_is_refused(void **state)
{
    (void)state;
    trace out;
    trace_problem problem;
    assert_false(trace_read("/nowhere/at/all.csv", &out, &problem));
    assert_non_null(strstr(problem.text, "/nowhere/at/all.csv: No such file"));
    assert_false(trace_read("/tmp", &out, &problem));
    assert_non_null(strstr(problem.text, "/tmp"));
}

/* ---- gzip ---- */

/* `text`, compressed, as a file's bytes, for the caller to free. */
static unsigned char *compressed(const char *text, size_t *length)
{
    scratch_file file = scratch_write("");
    gzFile to = gzopen(file.path, "wb");
    assert_non_null(to);
    assert_int_equal(gzwrite(to, text, (unsigned)strlen(text)), strlen(text));
    assert_int_equal(gzclose(to), Z_OK);
    FILE *from = fopen(file.path, "rb");
    assert_non_null(from);
    unsigned char *bytes = malloc(1 << 20);
    assert_non_null(bytes);
    *length = fread(bytes, 1, 1 << 20, from);
    fclose(from);
    scratch_remove(&file);
    return bytes;
}

static char *long_trace(void)
{
    text_builder text;
    text_begin(&text);
    fputs(TRACE_HEADER, text.stream);
    for (unsigned i = 0; i < 5000; i++)
        fprintf(text.stream, "alloc,%u,%u,0,%u\n", i, i * 37 + 1, i);
    fclose(text.stream);
    return text.text;
}

static void a_gzip_file_reads_as_what_was_compressed(void **state)
{
    (void)state;
    char *text = long_trace();
    size_t length;
    unsigned char *bytes = compressed(text, &length);
    scratch_file file = scratch_write_bytes(bytes, length);
    trace out;
    trace_problem problem;
    bool read = trace_read(file.path, &out, &problem);
    scratch_remove(&file);
    free(bytes);
    free(text);
    assert_true(read);
    assert_int_equal(out.row_count, 5000);
    assert_int_equal(out.blocks[4999].bytes, 4999 * 37 + 1);
    trace_free(&out);
}

static void a_gzip_file_that_is_cut_off_anywhere_or_damaged_is_refused(void **state)
{
    (void)state;
    char *text = long_trace();
    size_t length;
    unsigned char *bytes = compressed(text, &length);
    static const size_t cuts[] = {1, 4, 8, 9, 100};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        scratch_file file = scratch_write_bytes(bytes, length - cuts[i]);
        trace out;
        trace_problem problem;
        bool read = trace_read(file.path, &out, &problem);
        scratch_remove(&file);
        assert_false(read);
        assert_non_null(strstr(problem.text, "cut off"));
    }
    bytes[length / 2] ^= 0x10;
    scratch_file file = scratch_write_bytes(bytes, length);
    trace out;
    trace_problem problem;
    bool read = trace_read(file.path, &out, &problem);
    scratch_remove(&file);
    assert_false(read);
    free(bytes);
    free(text);
}

static void a_damaged_gzip_file_is_named_once(void **state)
{
    (void)state;
    size_t length;
    unsigned char *bytes = compressed(TRACE_HEADER "alloc,0,1,0,0\n", &length);
    bytes[length - 6] ^= 0x10; /* in the checksum */
    scratch_file file = scratch_write_bytes(bytes, length);
    trace out;
    trace_problem problem;
    bool read = trace_read(file.path, &out, &problem);
    const char *named = strstr(problem.text, file.path);
    bool once = named == problem.text && !strstr(named + 1, file.path);
    scratch_remove(&file);
    free(bytes);
    assert_false(read);
    assert_true(once);
    assert_non_null(strstr(problem.text, ": read error: "));
}

static void a_time_that_no_clock_reaches_is_refused(void **state)
{
    (void)state;
    trace read = read_text(TRACE_HEADER "alloc,0,1,0,18446744073709551615\nfree,0,1,0,18446744073709551615\n");
    trace_free(&read);
    read = read_text(TRACE_HEADER "alloc,0,1,0,1\nfree,0,1,0,9223372036854776\n");
    trace_free(&read);
    assert_refused(TRACE_HEADER "alloc,0,1,0,1\nfree,0,1,0,9223372036854777\n", 3, "at most 9223372036854775");
    assert_refused(TRACE_HEADER "alloc,0,1,0,0\nfree,0,1,0,18446744073709551615\n", 3,
                   "18446744073709551615 us after that of the first line");
}

/* ---- RMM ---- */

#define RMM_HEADER "Thread,Time,Action,Pointer,Size,Stream\n"

static void a_log_of_rmm_is_read(void **state)
{
    (void)state;
    trace read = read_text(RMM_HEADER "21104,10:23:45.000100,allocate,0x7f0000000000,1024,0x0\n"
                                      "21104,10:23:45.000150,allocate failure,(nil),99999999999,0x0\n"
                                      "21105,10:23:45:000200,allocate,0x7f0000000400,2048,0x55aa\n"
                                      "21105,10:23:45.000250,allocate,0x0,0,0x55aa\n"
                                      "21105,10:23:45.000260,free,0x0,0,0x55aa\n"
                                      "21104,10:23:45.000300,free,0x7f0000000000,1024,0x55aa\n"
                                      "21104,10:23:46.000300,allocate,7f0000000000,512,0x0\n");
    assert_int_equal(read.row_count, 4);
    assert_int_equal(read.block_count, 3);
    assert_int_equal(read.stream_count, 2);
    assert_int_equal(read.recorded_failures, 1);
    assert_int_equal(read.live_at_end, 2);
    assert_int_equal(read.blocks[0].id, 0x7f0000000000u);
    assert_int_equal(read.blocks[2].id, 0x7f0000000000u);
    assert_int_equal(read.rows[1].time_us, 100);
    assert_int_equal(read.rows[2].op, TRACE_FREE);
    assert_int_equal(read.rows[2].stream, 1);
    assert_int_equal(read.rows[2].line, 7);
    assert_int_equal(read.rows[3].time_us, 1000200);
    trace_free(&read);
}

static void the_clock_of_an_rmm_log_passes_midnight(void **state)
{
    (void)state;
    trace read = read_text(RMM_HEADER "1,23:59:59.999999,allocate,0x100,1,0\n"
                                      "1,00:00:00.000001,allocate,0x200,1,0\n"
                                      "2,23:59:59.999998,allocate,0x300,1,0\n"
                                      "1,00:00:01.000000,free,0x100,1,0\n");
    assert_int_equal(read.rows[1].time_us, 2);
    assert_int_equal(read.rows[2].time_us, 0);
    assert_int_equal(read.rows[3].time_us, 1000001);
    trace_free(&read);
}

static void malformed_rmm_logs_are_refused_with_file_and_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t line;
        const char *words;
    } wrong[] = {
        {RMM_HEADER, 2, "no operation"},
        {RMM_HEADER "1,00:00:00.000000,allocate,0x1,1\n", 2, "5 columns: expected 6"},
        {RMM_HEADER "1,00:00:00.000000,deallocate,0x1,1,0\n", 2, "Action is \"deallocate\""},
        {RMM_HEADER ",00:00:00.000000,allocate,0x1,1,0\n", 2, "Thread is missing"},
        {RMM_HEADER "1,24:00:00.000000,allocate,0x1,1,0\n", 2, "Time is"},
        {RMM_HEADER "1,00:60:00.000000,allocate,0x1,1,0\n", 2, "Time is"},
        {RMM_HEADER "1,00:00:00.000,allocate,0x1,1,0\n", 2, "Time is"},
        {RMM_HEADER "1,now,allocate,0x1,1,0\n", 2, "Time is"},
        {RMM_HEADER "1,00:00:00.000000,allocate,ptr,1,0\n", 2, "Pointer is"},
        {RMM_HEADER "1,00:00:00.000000,allocate,0x11112222333344445,1,0\n", 2, "Pointer is"},
        {RMM_HEADER "1,00:00:00.000000,allocate,0x,1,0\n", 2, "Pointer is"},
        {RMM_HEADER "1,00:00:00.000000,allocate,0x1,one,0\n", 2, "Size is"},
        {RMM_HEADER "1,00:00:00.000000,allocate,0x1,1,\n", 2, "Stream is missing"},
        {RMM_HEADER "1,00:00:00.000000,free,0x1,1,0\n", 3, "no allocation, and 1 free"},
        {RMM_HEADER "1,00:00:00.000000,all", 3, "no operation"},
        {RMM_HEADER "1,00:00:00.000000,allocate,0x1,1,0\n1,00:00\n", 3, "2 columns: expected 6"},
        {RMM_HEADER "1,00:00\n1,00:00:00.000000,allocate,0x1,1,0\n", 2, "2 columns: expected 6"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_refused(wrong[i].text, wrong[i].line, wrong[i].words);
}

static void an_rmm_log_that_began_after_its_program_is_replayed_from_there(void **state)
{
    (void)state;
    trace read = read_text(RMM_HEADER "1,00:00:00.000001,free,0x100,64,0x0\n"
                                      "1,00:00:00.000002,allocate,0x200,32,0x5\n"
                                      "1,00:00:00.000003,free,0x300,64,0x7\n"
                                      "1,00:00:00.000004,free,0x200,32,0x5\n"
                                      "1,00:00:00.000005,free,0x200,32,0x5\n");
    assert_int_equal(read.row_count, 2);
    assert_int_equal(read.recorded_strays, 3);
    assert_int_equal(read.live_at_end, 0);
    assert_int_equal(read.stream_count, 1);
    assert_int_equal(read.rows[1].op, TRACE_FREE);
    assert_int_equal(read.rows[1].line, 5);
    trace_free(&read);
}

/* RMM frees, then writes the line. In between another thread may allocate the address, and write its line. */
static void a_free_that_an_rmm_log_lacks_or_has_late_is_added_where_the_address_returns(void **state)
{
    (void)state;
    trace read = read_text(RMM_HEADER "1,00:00:00.000001,allocate,0x100,64,0x5\n"
                                      "2,00:00:00.000002,allocate,0x100,32,0x7\n"
                                      "1,00:00:00.000003,free,0x100,64,0x5\n"
                                      "2,00:00:00.000004,free,0x100,32,0x7\n");
    assert_int_equal(read.row_count, 4);
    assert_int_equal(read.block_count, 2);
    assert_int_equal(read.rows[1].op, TRACE_FREE);
    assert_int_equal(read.rows[1].block, 0);
    assert_int_equal(read.rows[1].stream, 0);
    assert_int_equal(read.rows[2].op, TRACE_ALLOC);
    assert_int_equal(read.recorded_unfreed, 1);
    assert_int_equal(read.recorded_strays, 1);
    assert_int_equal(read.peak_live_bytes, 64);
    assert_int_equal(read.live_at_end, 0);
    trace_free(&read);
}

static void an_rmm_log_that_is_cut_off_anywhere_is_read_up_to_there(void **state)
{
    (void)state;
    static const char whole[] = RMM_HEADER "1,00:00:00.000001,allocate,0x100,64,0x55aa\n"
                                           "1,00:00:00.000002,allocate,0x200,32,0x77bb\n"
                                           "1,00:00:00.000003,free,0x100,64,0x55aa\n"
                                           "1,00:00:00.000004,free,0x200,32,0x77bb\n";
    const size_t header = sizeof RMM_HEADER - 1, first = (size_t)(strchr(whole + header, '\n') - whole) + 1;
    for (size_t size = first; size < sizeof whole; size++) {
        scratch_file file = scratch_write_bytes(whole, size);
        trace read;
        trace_problem problem;
        const bool good = trace_read(file.path, &read, &problem);
        scratch_remove(&file);
        if (!good)
            fail_msg("cut off at byte %zu: %s", size, problem.text);
        uint32_t lines = 0;
        size_t end = header; /* of the last whole line */
        for (size_t at = header; at < size; at++)
            if (whole[at] == '\n') {
                lines++;
                end = at + 1;
            }
        const bool complete = size != end && whole[size] == '\n'; /* all but the line end */
        const bool new_stream = lines == 1 && size - end > sizeof "1,00:00:00.000002,allocate,0x200,32,0x" - 1;
        if (complete || new_stream) { /* nothing known tells a shorter name from a whole one */
            assert_int_equal(read.row_count, lines + 1);
            assert_int_equal(read.recorded_torn, 0);
        } else {
            assert_int_equal(read.row_count, lines);
            assert_int_equal(read.recorded_torn, size - end);
        }
        trace_free(&read);
    }
}

static void a_log_whose_compressed_file_is_cut_off_is_read_up_to_there(void **state)
{
    (void)state;
    text_builder text;
    size_t length;
    uint32_t most = 0;
    text_begin(&text);
    fputs(RMM_HEADER, text.stream);
    for (unsigned i = 0; i < 5000; i++)
        fprintf(text.stream, "1,00:00:00.%06u,allocate,0x%x,%u,0x0\n", i, 4096 + 256 * i, i * 37 % 1001 + 1);
    fclose(text.stream);
    unsigned char *bytes = compressed(text.text, &length);
    for (size_t left = length / 2; left < length; left += 499) {
        scratch_file file = scratch_write_bytes(bytes, left);
        trace read;
        trace_problem problem;
        const bool good = trace_read(file.path, &read, &problem);
        scratch_remove(&file);
        if (!good)
            fail_msg("%s", problem.text);
        assert_true(read.recorded_cut);
        assert_true(read.row_count >= most && read.row_count <= 5000);
        most = read.row_count;
        trace_free(&read);
    }
    assert_true(most > 3000);
    free(bytes);
    free(text.text);
}

/* ---- host memory ---- */

/* 12 MiB that compress to some 20 KiB. */
static scratch_file make_bomb(void)
{
    scratch_file file = scratch_write("");
    static const char row[] = "sync,0,0,0,0\n";
    char many[1000 * (sizeof row - 1) + 1] = "";
    for (size_t i = 0; i < 1000; i++)
        memcpy(many + i * (sizeof row - 1), row, sizeof row);
    gzFile to = gzopen(file.path, "wb");
    assert_non_null(to);
    gzputs(to, TRACE_HEADER);
    for (int i = 0; i < 1000; i++)
        gzputs(to, many);
    assert_int_equal(gzclose(to), Z_OK);
    return file;
}

static void a_small_file_that_holds_a_large_trace_is_refused_beyond_the_limit(void **state)
{
    (void)state;
    scratch_file file = make_bomb();
    trace read;
    trace_problem problem;
    const bool within = trace_read_within(file.path, 4 << 20, &read, &problem);
    assert_false(within);
    assert_true(problem.too_large);
    assert_non_null(strstr(problem.text, "the trace needs more than 4 MiB (4194304 bytes) of host memory"));
    assert_null(read.rows);
    assert_true(trace_read_within(file.path, 64 << 20, &read, &problem));
    assert_false(problem.too_large);
    assert_int_equal(read.row_count, 1000000);
    assert_in_range(read.memory, 1000000 * sizeof(trace_row), 64 << 20);
    trace_free(&read);
    scratch_remove(&file);
}

static void as_many_streams_as_there_may_be_are_told_apart(void **state)
{
    (void)state;
    text_builder text;
    text_begin(&text);
    fputs(RMM_HEADER, text.stream);
    for (unsigned i = 0; i < 2 * TRACE_STREAM_LIMIT; i++)
        fprintf(text.stream, "1,00:00:00.000000,allocate,0x%x,1,0x%x\n", i + 1, i % TRACE_STREAM_LIMIT);
    scratch_file file = text_end_as_file(&text);
    trace read;
    trace_problem problem;
    const bool good = trace_read(file.path, &read, &problem);
    scratch_remove(&file);
    assert_true(good);
    assert_int_equal(read.stream_count, TRACE_STREAM_LIMIT);
    for (uint32_t i = 0; i < read.row_count; i++)
        assert_int_equal(read.rows[i].stream, i % TRACE_STREAM_LIMIT);
    trace_free(&read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_malformed_is_shown_and_not_obeyed),
        cmocka_unit_test(a_byte_order_mark_is_skipped),
        cmocka_unit_test(rows_blocks_and_streams_are_read),
        cmocka_unit_test(a_last_line_needs_no_line_end_and_lines_may_end_as_on_windows),
        cmocka_unit_test(an_id_may_be_allocated_again_after_its_free),
        cmocka_unit_test(a_use_says_how_it_touches_the_block),
        cmocka_unit_test(many_ids_are_told_apart),
        cmocka_unit_test(malformed_traces_are_refused_with_file_and_line),
        cmocka_unit_test(a_line_that_is_too_long_or_holds_a_zero_byte_is_refused),
        cmocka_unit_test(a_file_that_cannot_be_read_is_refused),
        cmocka_unit_test(a_gzip_file_reads_as_what_was_compressed),
        cmocka_unit_test(a_damaged_gzip_file_is_named_once),
        cmocka_unit_test(a_time_that_no_clock_reaches_is_refused),
        cmocka_unit_test(a_gzip_file_that_is_cut_off_anywhere_or_damaged_is_refused),
        cmocka_unit_test(a_log_of_rmm_is_read),
        cmocka_unit_test(the_clock_of_an_rmm_log_passes_midnight),
        cmocka_unit_test(malformed_rmm_logs_are_refused_with_file_and_line),
        cmocka_unit_test(an_rmm_log_that_began_after_its_program_is_replayed_from_there),
        cmocka_unit_test(a_free_that_an_rmm_log_lacks_or_has_late_is_added_where_the_address_returns),
        cmocka_unit_test(an_rmm_log_that_is_cut_off_anywhere_is_read_up_to_there),
        cmocka_unit_test(a_log_whose_compressed_file_is_cut_off_is_read_up_to_there),
        cmocka_unit_test(a_small_file_that_holds_a_large_trace_is_refused_beyond_the_limit),
        cmocka_unit_test(as_many_streams_as_there_may_be_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
