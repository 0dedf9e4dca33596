/* Reading binary logs: what the encoder wrote comes back, a cut-off file is read up to where it was cut, and no damage
 * goes unnoticed. And logs as traces for `strata replay`. */
#include "support/replay.h"

#include "resources/logging/binary.h"
#include "resources/logging/csv.h"
#include "tools/log/log_filter.h"
#include "tools/log/log_reader.h"
#include "tools/trace/trace.h"

#include <inttypes.h>
#include <time.h>
#include <zlib.h>

enum { RECORDS = 700, CUT = 110 };

typedef struct whole_log {
    strata_log_record records[RECORDS];
    unsigned char bytes[RECORDS * 160 + 65536];
    size_t size;
    size_t ends[RECORDS];   /* of batches */
    size_t counts[RECORDS]; /* records up to there */
    size_t batches;
} whole_log;

static const char stack_text[] = "logging(file=x.slog), async";

/* Small numbers often, large ones sometimes. */
static uint64_t some_number(uint64_t *seed)
{
    uint64_t wide = (uint64_t)next_random(seed) << 33 ^ (uint64_t)next_random(seed) << 16 ^ next_random(seed);
    return wide >> next_random(seed) % 64;
}

static strata_log_record some_record(uint64_t *seed, const strata_log_record *before, const strata_tag tags[4])
{
    uint32_t pick = next_random(seed);
    strata_log_record record = {
        .monotonic_ns = before->monotonic_ns + next_random(seed) % 5000,
        .thread = 1 + pick % 70, /* more than there are places */
        .thread_id = 4000 + pick % 70,
        .stream = some_number(seed),
        .stream_id = (uint32_t)some_number(seed),
        .requested = some_number(seed),
        .bytes = some_number(seed),
        .device = 3,
        .kind = (strata_log_kind)(1 + pick / 70 % (STRATA_LOG_KIND_LIMIT - 1)),
        .flags = next_random(seed) % 8,
    };
    if (next_random(seed) % 4 == 0) { /* often the same stream again */
        record.stream = before->stream;
        record.stream_id = before->stream_id;
    }
    record.number = next_random(seed) % 3 ? before->number + 1 : some_number(seed);
    if (next_random(seed) % 2) {
        record.address = some_number(seed);
        record.generation = some_number(seed) >> 16 | 1;
        record.slot = next_random(seed) & 0xffffff;
    }
    if (next_random(seed) % 3 == 0)
        record.tag = tags[next_random(seed) % 4];
    if (next_random(seed) % 5 == 0)
        record.status = STRATA_ERROR_OUT_OF_MEMORY;
    if (next_random(seed) % 5 == 0)
        record.access = STRATA_ACCESS_READ_WRITE;
    if (next_random(seed) % 7 == 0)
        record.alignment = UINT64_C(1) << (1 + next_random(seed) % 40);
    if (next_random(seed) % 2) {
        record.flags |= STRATA_LOG_FLAG_DURATION;
        record.duration_ns = some_number(seed);
    }
    return record;
}

static whole_log *make_log(size_t count)
{
    whole_log *made = calloc(1, sizeof *made);
    log_encoder *encoder = malloc(sizeof *encoder);
    strata_tag tags[4];
    char long_name[256];
    assert_true(made && encoder);
    memset(long_name, 'x', 255);
    long_name[255] = '\0';
    const char *const names[] = {"weights", "a,b", "", long_name};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(strata_tag_intern(names[i], &tags[i]), STRATA_SUCCESS);
    uint64_t seed = 7;
    strata_log_record before = {.monotonic_ns = 1000000000};
    log_encode_header(encoder, 3, 1700000000000000000u, made->bytes);
    made->size = LOG_FILE_HEADER;
    for (size_t i = 0; i < count; i++) {
        before = some_record(&seed, &before, tags);
        before.wall_ns = before.monotonic_ns + 1600000000000000000u;
        made->records[i] = before;
    }
    for (size_t done = 0; done < count;) {
        size_t bytes, most = count - done < 90 ? count - done : 90;
        done += log_encode_batch(encoder, &made->records[done], most, stack_text, 42, made->bytes + made->size, &bytes);
        assert_true(bytes <= LOG_BATCH_ROOM);
        made->size += bytes;
        made->counts[made->batches] = done;
        made->ends[made->batches++] = made->size;
        assert_true(made->size < sizeof made->bytes - LOG_BATCH_ROOM);
    }
    free(encoder);
    return made;
}

static void what_was_encoded_is_read_back(void **state)
{
    (void)state;
    whole_log *made = make_log(RECORDS);
    log_contents read;
    log_problem problem;
    if (!log_read_bytes(made->bytes, made->size, &read, &problem))
        fail_msg("%s", problem.text);
    assert_int_equal(read.count, RECORDS);
    for (size_t i = 0; i < RECORDS; i++) {
        const strata_log_record *wrote = &made->records[i];
        if (memcmp(&read.records[i], wrote, sizeof *wrote) != 0)
            fail_msg("record %zu is another one: number %" PRIu64 " and %" PRIu64, i, read.records[i].number,
                     wrote->number);
    }
    assert_int_equal(read.dropped, 42);
    assert_int_equal(read.device, 3);
    assert_true(read.created_ns == 1700000000000000000u);
    assert_string_equal(read.stack, stack_text);
    log_contents_free(&read);
    free(made);
}

static void a_log_that_was_cut_off_anywhere_is_read_up_to_there(void **state)
{
    (void)state;
    whole_log *made = make_log(CUT);
    for (size_t size = 0; size <= made->size; size++) {
        log_contents read;
        log_problem problem = {.text = ""};
        unsigned char *bytes = malloc(size ? size : 1); /* nothing is read beyond it */
        assert_non_null(bytes);
        memcpy(bytes, made->bytes, size);
        bool good = log_read_bytes(bytes, size, &read, &problem);
        free(bytes);
        assert_int_equal(good, size >= LOG_FILE_HEADER);
        if (!good) {
            assert_int_equal(strncmp(problem.text, "byte ", 5), 0);
            continue;
        }
        size_t whole = LOG_FILE_HEADER;
        for (size_t i = 0; i < made->batches; i++)
            whole = made->ends[i] <= size ? made->ends[i] : whole;
        assert_int_equal(read.torn, size - whole);
        assert_true(!read.count || memcmp(read.records, made->records, read.count * sizeof *read.records) == 0);
        assert_int_equal(read.count == CUT, size == made->size);
        log_contents_free(&read);
    }
    free(made);
}

static void damage_anywhere_is_noticed_and_its_place_is_said(void **state)
{
    (void)state;
    whole_log *made = make_log(30);
    for (size_t at = 0; at < made->size; at++) {
        for (int bit = 0; bit < 8; bit += 3) {
            log_contents read;
            log_problem problem = {.text = ""};
            made->bytes[at] ^= (unsigned char)(1 << bit);
            bool good = log_read_bytes(made->bytes, made->size, &read, &problem);
            made->bytes[at] ^= (unsigned char)(1 << bit);
            if (good && !read.damages)
                fail_msg("damage at byte %zu is not noticed", at);
            assert_int_equal(good, at >= LOG_FILE_HEADER);
            assert_int_equal(strncmp(good ? read.damage[0].text : problem.text, "byte ", 5), 0);
            assert_true(!good || read.torn == 0);
            log_contents_free(&read);
        }
    }
    free(made);
}

/* Reads a log that is damaged in one of its batches: the others are there, and that one if only its length is wrong. */
static void check_damaged(const whole_log *made, size_t begin, size_t end, bool whole, const char *words)
{
    log_contents read;
    log_problem problem;
    if (!log_read_bytes(made->bytes, made->size, &read, &problem))
        fail_msg("%s", problem.text);
    assert_int_equal(read.damages, 1);
    if (!strstr(read.damage[0].text, words))
        fail_msg("expected \"%s\", got \"%s\"", words, read.damage[0].text);
    assert_int_equal(read.torn, 0);
    size_t left_out = whole ? 0 : end - begin;
    assert_int_equal(read.count, RECORDS - left_out);
    for (size_t i = 0; i < read.count; i++) {
        size_t of = i < begin || whole ? i : i + left_out;
        assert_int_equal(memcmp(&read.records[i], &made->records[of], sizeof read.records[i]), 0);
    }
    log_contents_free(&read);
}

static void a_log_that_is_damaged_in_the_middle_is_read_before_and_behind_that(void **state)
{
    (void)state;
    char words[64];
    whole_log *made = make_log(RECORDS);
    for (size_t i = 0; i < made->batches; i++) {
        size_t from = i ? made->ends[i - 1] : LOG_FILE_HEADER, begin = i ? made->counts[i - 1] : 0;
        bool last = i + 1 == made->batches;
        snprintf(words, sizeof words, last ? "bytes up to the end are left out" : "are left out, up to byte %zu",
                 made->ends[i]);
        made->bytes[made->ends[i] - 1] ^= 1;
        check_damaged(made, begin, made->counts[i], false, words);
        made->bytes[made->ends[i] - 1] ^= 1;
        made->bytes[from] ^= 1;
        check_damaged(made, begin, made->counts[i], false, words);
        made->bytes[from] ^= 1;
        for (size_t byte = 0; byte < 4; byte++) { /* shorter, longer, beyond the end, and beyond all measure */
            made->bytes[from + 4 + byte] ^= 0x08;
            check_damaged(made, begin, made->counts[i], true, "its entries are intact and were read");
            made->bytes[from + 4 + byte] ^= 0x08;
        }
    }
    free(made);
}

/* As a log is read that is still written: whatever is there, and later on what has come. */
static void a_log_that_grows_is_read_piece_by_piece(void **state)
{
    (void)state;
    whole_log *made = make_log(CUT);
    for (size_t step = 1; step < 4000; step = step * 3 + 1) {
        log_contents read;
        log_problem problem = {.text = ""};
        size_t at = 0, used;
        log_decoder *decoder = log_decoder_make(&read, LOG_MEMORY);
        assert_non_null(decoder);
        for (size_t size = 0; size < made->size;) {
            size = size + step < made->size ? size + step : made->size;
            unsigned char *bytes = malloc(size - at + 1);
            assert_non_null(bytes);
            memcpy(bytes, made->bytes + at, size - at);
            if (!log_decoder_read(decoder, bytes, size - at, false, &used, &problem))
                fail_msg("%s", problem.text);
            free(bytes);
            at += used;
        }
        assert_int_equal(at, made->size);
        assert_int_equal(read.count, CUT);
        assert_true(read.torn == 0 && read.damages == 0);
        assert_int_equal(memcmp(read.records, made->records, CUT * sizeof *read.records), 0);
        log_decoder_free(decoder);
        log_contents_free(&read);
    }
    free(made);
}

/* ---- files ---- */

/* Whether a file with these bytes is read as they are out of memory. */
static void check_file_of(const unsigned char *bytes, size_t size)
{
    scratch_file file = scratch_write_bytes(bytes, size);
    log_contents expected, read;
    log_problem problem;
    assert_true(log_read_bytes(bytes, size, &expected, &problem));
    const bool good = log_read_file(file.path, LOG_MEMORY, &read, &problem);
    scratch_remove(&file);
    if (!good)
        fail_msg("%s", problem.text);
    assert_int_equal(read.count, expected.count);
    assert_memory_equal(read.records, expected.records, read.count * sizeof *read.records);
    assert_int_equal(read.torn, expected.torn);
    assert_int_equal(read.damages, expected.damages);
    for (size_t i = 0; i < read.damages && i < LOG_DAMAGES; i++)
        assert_string_equal(read.damage[i].text, expected.damage[i].text);
    log_contents_free(&read);
    log_contents_free(&expected);
}

/* The same batches again and again, more than are read at once. */
static void a_long_file_is_read_as_it_is_out_of_memory(void **state)
{
    (void)state;
    whole_log *made = make_log(RECORDS);
    const size_t part = made->size - LOG_FILE_HEADER, parts = 2 * LOG_READ_ROOM / part + 3;
    const size_t size = LOG_FILE_HEADER + parts * part;
    unsigned char *bytes = malloc(size);
    assert_non_null(bytes);
    memcpy(bytes, made->bytes, LOG_FILE_HEADER);
    for (size_t i = 0; i < parts; i++)
        memcpy(bytes + LOG_FILE_HEADER + i * part, made->bytes + LOG_FILE_HEADER, part);
    check_file_of(bytes, size);
    check_file_of(bytes, LOG_READ_ROOM);
    check_file_of(bytes, LOG_READ_ROOM - 5);
    static const size_t damaged[] = {100, LOG_READ_ROOM - 3, LOG_READ_ROOM + 900, 2 * LOG_READ_ROOM - 20000};
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++)
        bytes[damaged[i]] ^= 0x20;
    check_file_of(bytes, size);
    check_file_of(bytes, size - 11);
    free(bytes);
    free(made);
}

/* Some bytes of a log, compressed. */
static size_t compress_into(const unsigned char *bytes, size_t size, unsigned char *to, size_t room)
{
    z_stream stream = {.next_in = (unsigned char *)(uintptr_t)bytes,
                       .avail_in = (unsigned)size,
                       .next_out = to,
                       .avail_out = (unsigned)room};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    return stream.total_out;
}

static void a_compressed_file_that_is_cut_off_is_read_up_to_there(void **state)
{
    (void)state;
    static unsigned char bytes[RECORDS * 160];
    whole_log *made = make_log(RECORDS);
    const size_t size = compress_into(made->bytes, made->size, bytes, sizeof bytes);
    size_t most = 0;
    for (size_t left = 12; left <= size; left += left < 40 ? 1 : 97) {
        scratch_file file = scratch_write_bytes(bytes, left);
        log_contents read;
        log_problem problem;
        const bool good = log_read_file(file.path, LOG_MEMORY, &read, &problem);
        scratch_remove(&file);
        if (!good) {
            assert_string_equal(problem.text, "read error: the compressed file is cut off");
            assert_int_equal(most, 0);
            continue;
        }
        assert_true(read.count >= most && read.count <= RECORDS && read.torn == 0);
        assert_true(!read.count || memcmp(read.records, made->records, read.count * sizeof *read.records) == 0);
        assert_int_equal(read.damages, 1);
        assert_string_equal(read.damage[0].text, "read error: the compressed file is cut off; "
                                                 "everything before that was read");
        most = read.count;
        log_contents_free(&read);
    }
    assert_true(most > RECORDS / 2);
    scratch_file file = scratch_write_bytes(bytes, size);
    log_contents read;
    log_problem problem;
    assert_true(log_read_file(file.path, LOG_MEMORY, &read, &problem));
    scratch_remove(&file);
    assert_true(read.count == RECORDS && !read.damages);
    log_contents_free(&read);
    free(made);
}

static void what_is_no_log_is_refused_by_its_beginning(void **state)
{
    (void)state;
    log_contents read;
    log_problem problem;
    assert_false(log_read_file("/dev/zero", LOG_MEMORY, &read, &problem)); /* which has no end */
    assert_string_equal(problem.text, "byte 0: not a Strata log");
    assert_false(log_read_file("/", LOG_MEMORY, &read, &problem));
    assert_string_equal(problem.text, "read error: Is a directory");
}

/* Entries that no encoder writes, behind a checksum that is right. */
static void entries_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const struct {
        unsigned char entries[16];
        size_t size;
        const char *words;
    } wrong[] = {
        {{0x01, 0x00}, 2, "record without a thread"},
        {{0x01, 0x03, 9, 9}, 4, "an undefined thread"},
        {{0x01, 0x01, 99}, 3, "record without a thread"},
        {{0x0f, 0x03}, 2, "unknown kind"},
        {{0x40}, 1, "unknown kind"},
        {{0x10, 99, 1, 1}, 4, "thread index out of range"},
        {{0x20, 99, 1, 1}, 4, "stream index out of range"},
        {{0x30, 0, 1, 'x'}, 4, "tag without a number"},
        {{0x30, 1, 2, 'x', 0}, 5, "zero byte"},
        {{0x30, 1, 9, 'x'}, 4, "truncated text"},
        {{0x00, 0xff, 0xff, 0x7f}, 4, "text too long"},
        {{0x10, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1}, 13, "more than 64 bits"},
        {{0x10, 1, 1}, 3, "truncated entry"},
        {{0x10, 1, 1, 0xff, 0xff, 0xff, 0xff, 0x7f}, 8, "thread number too large"},
        {{0x10, 1, 1, 1}, 4, "a batch of 1 records holds 0"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        whole_log *made = make_log(1);
        unsigned char *batch = made->bytes + LOG_FILE_HEADER;
        memcpy(batch + LOG_BATCH_HEADER, wrong[i].entries, wrong[i].size);
        log_put_u32(batch + 4, (uint32_t)wrong[i].size);
        log_put_u32(batch + 8,
                    log_crc(0, batch + LOG_BATCH_CHECKED, LOG_BATCH_HEADER - LOG_BATCH_CHECKED + wrong[i].size));
        log_contents read;
        log_problem problem = {.text = ""};
        assert_true(log_read_bytes(made->bytes, LOG_FILE_HEADER + LOG_BATCH_HEADER + wrong[i].size, &read, &problem));
        assert_true(read.damages == 1 && read.count == 0);
        if (!strstr(read.damage[0].text, wrong[i].words))
            fail_msg("expected \"%s\", got \"%s\"", wrong[i].words, read.damage[0].text);
        log_contents_free(&read);
        free(made);
    }
}

static void the_checksum_is_that_of_zlib(void **state)
{
    (void)state;
    assert_int_equal(log_crc(0, "123456789", 9), 0xcbf43926); /* the check value of CRC-32/ISO-HDLC */
    assert_int_equal(log_crc(log_crc(0, "1234", 4), "56789", 5), 0xcbf43926);
}

static void records_are_sorted_and_those_of_one_time_keep_their_order(void **state)
{
    (void)state;
    enum { COUNT = 500 };
    static strata_log_record records[COUNT];
    uint64_t seed = 3;
    for (size_t i = 0; i < COUNT; i++)
        records[i] = (strata_log_record){.monotonic_ns = next_random(&seed) % 100, .number = i};
    assert_true(log_sort(records, COUNT));
    for (size_t i = 1; i < COUNT; i++) {
        assert_true(records[i].monotonic_ns >= records[i - 1].monotonic_ns);
        if (records[i].monotonic_ns == records[i - 1].monotonic_ns)
            assert_true(records[i].number > records[i - 1].number);
    }
}

static void moments_are_read_in_three_ways(void **state)
{
    (void)state;
    log_moment moment;
    assert_true(log_filter_read_moment("1.5s", &moment) && moment.kind == LOG_MOMENT_SINCE_START);
    assert_true(moment.ns == 1500000000);
    assert_true(log_filter_read_moment("13:05:59.25", &moment) && moment.kind == LOG_MOMENT_OF_DAY);
    assert_true(moment.ns == ((13 * 60 + 5) * 60 + 59) * UINT64_C(1000000000) + 250000000);
    assert_true(log_filter_read_moment("2026-01-31T13:05:59", &moment) && moment.kind == LOG_MOMENT_WALL);
    assert_true(log_filter_read_moment("2024-02-29T00:00:00", &moment) && moment.kind == LOG_MOMENT_WALL);
    assert_true(log_filter_read_moment("2600-01-01T00:00:00", &moment) && moment.ns == UINT64_MAX);
    static const char *const wrong[] = {"",
                                        "x",
                                        "25:00:00",
                                        "13:05:59.x",
                                        "13:61:00",
                                        "2026-01-31",
                                        "-1s",
                                        "1h",
                                        "2026-02-29T00:00:00",
                                        "2026-13-01T00:00:00",
                                        "2026-00-01T00:00:00",
                                        "2026-01-00T00:00:00",
                                        "1900-02-29T00:00:00"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(log_filter_read_moment(wrong[i], &moment));
}

static void a_time_of_day_is_the_clocks_on_the_days_that_it_is_set(void **state)
{
    (void)state;
    const char *given = getenv("TZ");
    char *before = given ? strdup(given) : NULL;
    setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
    tzset();
    static const struct {
        uint64_t noon, found; /* UTC, seconds: of the first record, and of 13:00:00 there */
    } days[] = {
        {1774699200, 1774699200}, /* 2026-03-28, winter */
        {1774785600, 1774782000}, /* 2026-03-29, of 23 hours */
        {1792929600, 1792929600}, /* 2026-10-25, of 25 hours */
    };
    for (size_t i = 0; i < sizeof days / sizeof days[0]; i++) {
        log_filter choice = {.kinds = 0};
        assert_true(log_filter_read_moment("13:00:00.5", &choice.from));
        log_filter_begin(&choice, days[i].noon * UINT64_C(1000000000));
        assert_true(choice.from_ns == days[i].found * UINT64_C(1000000000) + 500000000);
    }
    if (before)
        setenv("TZ", before, 1);
    else
        unsetenv("TZ");
    tzset();
    free(before);
}

/* ---- as traces ---- */

static strata_log_record at(strata_log_kind kind, uint32_t slot, uint64_t generation, uint64_t bytes, uint64_t stream,
                            uint64_t time_us)
{
    return (strata_log_record){.kind = kind,
                               .slot = slot,
                               .generation = generation,
                               .requested = bytes,
                               .bytes = bytes,
                               .stream = stream,
                               .monotonic_ns = time_us * 1000 + 1000000,
                               .wall_ns = time_us * 1000,
                               .thread = 1,
                               .thread_id = 5,
                               .address = 0x1000 * slot,
                               .access = kind == STRATA_LOG_FINISH_USE ? STRATA_ACCESS_WRITE : STRATA_ACCESS_NONE};
}

static size_t make_story(strata_log_record *to)
{
    size_t count = 0;
    to[count++] = at(STRATA_LOG_DEALLOCATE, 9, 3, 64, 0x55, 0); /* from before the log */
    to[count++] = at(STRATA_LOG_ALLOCATE, 1, 1, 1000, 0x55, 10);
    to[count] = at(STRATA_LOG_ALLOCATE, 0, 0, 1 << 30, 0x55, 20);
    to[count++].status = STRATA_ERROR_OUT_OF_MEMORY;
    to[count++] = at(STRATA_LOG_PREPARE_USE, 1, 1, 1000, 0x66, 30);
    to[count++] = at(STRATA_LOG_FINISH_USE, 1, 1, 1000, 0x66, 40);
    to[count++] = at(STRATA_LOG_DEALLOCATE, 1, 1, 1000, UINT64_MAX, 50); /* its stream is gone */
    to[count++] = at(STRATA_LOG_REUSED, 1, 1, 1000, 0, 60);
    to[count++] = at(STRATA_LOG_ALLOCATE, 1, 2, 2000, 2, 60); /* the same slot and address; per-thread stream */
    to[count] = at(STRATA_LOG_ALLOCATE, 2, 1, 3000, 2, 70);   /* that of another thread */
    to[count++].thread = 2;
    to[count++] = at(STRATA_LOG_DEALLOCATE, 1, 2, 2000, 2, 80);
    to[count] = at(STRATA_LOG_FINISH_USE, 2, 1, 3000, 0x66, 90); /* cancelled */
    to[count++].access = STRATA_ACCESS_NONE;
    to[count++] = at(STRATA_LOG_REAP, 0, 0, 1, 0, 100);
    to[count++] = at(STRATA_LOG_SYNCHRONIZE, 0, 0, 0, 0x77, 105); /* nothing else is on that stream */
    to[count++] = at(STRATA_LOG_SYNCHRONIZE, 0, 0, 0, 0x66, 110);
    to[count] = at(STRATA_LOG_SYNCHRONIZE, 0, 0, 0, 2, 120);
    to[count++].thread = 2;
    to[count] = at(STRATA_LOG_SYNCHRONIZE, 0, 0, 0, 0x66, 130);
    to[count++].status = STRATA_ERROR_STREAM_CAPTURE;
    return count;
}

static void check_story(const trace *read)
{
    static const struct {
        trace_op op;
        uint32_t stream, block;
        uint64_t bytes, time_us;
    } wanted[] = {
        {TRACE_ALLOC, 0, 0, 1000, 0},  {TRACE_USE, 1, 0, 1000, 30},   {TRACE_FREE, 0, 0, 1000, 40},
        {TRACE_ALLOC, 2, 1, 2000, 50}, {TRACE_ALLOC, 3, 2, 3000, 60}, {TRACE_FREE, 2, 1, 2000, 70},
        {TRACE_SYNC, 1, 0, 0, 100},    {TRACE_SYNC, 3, 0, 0, 110},
    };
    assert_int_equal(read->row_count, 8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(read->rows[i].op, wanted[i].op);
        assert_int_equal(read->rows[i].stream, wanted[i].stream);
        assert_int_equal(read->rows[i].time_us, wanted[i].time_us);
        if (wanted[i].op == TRACE_SYNC)
            continue;
        assert_int_equal(read->rows[i].block, wanted[i].block);
        assert_int_equal(read->blocks[read->rows[i].block].bytes, wanted[i].bytes);
    }
    assert_int_equal(read->rows[1].access, STRATA_ACCESS_WRITE);
    assert_int_equal(read->recorded_failures, 2);
    assert_int_equal(read->stream_count, 4);
    assert_int_equal(read->recorded_strays, 1);
    assert_int_equal(read->live_at_end, 1);
}

static void check_file(const scratch_file *file, uint64_t dropped)
{
    trace read;
    trace_problem problem = {.text = ""};
    bool good = trace_read(file->path, &read, &problem);
    scratch_remove(file);
    if (!good)
        fail_msg("%s", problem.text);
    check_story(&read);
    assert_int_equal(read.recorded_dropped, dropped);
    assert_int_equal(read.recorded_torn, 0);
    trace_free(&read);
}

static void a_log_is_a_trace_binary_or_csv(void **state)
{
    (void)state;
    strata_log_record story[20];
    size_t count = make_story(story), bytes;
    static log_encoder encoder;
    static unsigned char whole[LOG_FILE_HEADER + LOG_BATCH_ROOM];
    log_encode_header(&encoder, 0, 0, whole);
    assert_int_equal(log_encode_batch(&encoder, story, count, "", 7, whole + LOG_FILE_HEADER, &bytes), count);
    scratch_file file = scratch_write_bytes(whole, LOG_FILE_HEADER + bytes);
    check_file(&file, 7);
    text_builder text;
    char line[LOG_CSV_ROOM];
    text_begin(&text);
    fputs(LOG_CSV_HEADER "\n", text.stream);
    for (size_t i = 0; i < count; i++)
        fwrite(line, 1, log_csv_line(&story[i], "tag, with \"words\"", line), text.stream);
    file = text_end_as_file(&text);
    check_file(&file, 0);
}

static void check_refused(const void *bytes, size_t size, const char *words)
{
    scratch_file file = scratch_write_bytes(bytes, size);
    trace read;
    trace_problem problem = {.text = ""};
    bool good = trace_read(file.path, &read, &problem);
    bool named = strncmp(problem.text, file.path, strlen(file.path)) == 0;
    scratch_remove(&file);
    if (good || !named || !strstr(problem.text, words))
        fail_msg("expected \"%s\", got \"%s\"", words, problem.text);
}

static void a_log_that_is_no_good_trace_is_refused(void **state)
{
    (void)state;
    whole_log *made = make_log(20);
    made->bytes[made->size - 1] ^= 1;
    check_refused(made->bytes, made->size, "the batch is damaged");
    check_refused(made->bytes, LOG_FILE_HEADER, "has no operations");
    check_refused(made->bytes, 20, "ends within its header");
    free(made);
#define CSV_BEGIN LOG_CSV_HEADER "\n5,10:00:00.000001,"
#define CSV_END   ",1,1,1,1,0,1,64,0,1,1,,STRATA_SUCCESS,,,\n"
    static const struct {
        const char *text, *words;
    } wrong[] = {
        {CSV_BEGIN "fly,0x10,64,0x0" CSV_END, ":2: Action is \"fly\""},
        {CSV_BEGIN "allocate,10,64,0x0" CSV_END, ":2: Pointer is \"10\""},
        {CSV_BEGIN "allocate,0x10,many,0x0" CSV_END, ":2: Size is \"many\""},
        {CSV_BEGIN "allocate,0x10,64,0" CSV_END, ":2: Stream is \"0\""},
        {CSV_BEGIN "allocate,0x10,64\n", ":2: 5 columns: expected 21"},
        {CSV_BEGIN "allocate,0x10,64,0x0,1,1,1,1,0,1,64,0,16777216,1,,STRATA_SUCCESS,,,\n", ":2: Slot is 16777216"},
        {CSV_BEGIN "allocate,0x10,64,0x0,1,1,1,1,0,1,64,0,4294967296,1,,STRATA_SUCCESS,,,\n", ":2: Slot is 4294967296"},
        {CSV_BEGIN "allocate,0x10,64,0x0,1,1,1,1,0,1,64,0,1,1099511627776,,STRATA_SUCCESS,,,\n",
         ":2: Generation is 10995"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        check_refused(wrong[i].text, strlen(wrong[i].text), wrong[i].words);
}

/* Damage full of beginnings of batches, each with a length and a wrong checksum. Time grows with the bytes: without the
 * index of checksums each would cost a mebibyte. */
static unsigned char *make_false_marks(size_t size)
{
    unsigned char *bytes = malloc(size);
    assert_non_null(bytes);
    log_encoder *encoder = malloc(sizeof *encoder);
    assert_non_null(encoder);
    log_encode_header(encoder, 3, 1700000000000000000u, bytes);
    free(encoder);
    for (size_t at = LOG_FILE_HEADER; at < size; at++)
        bytes[at] = 0;
    for (size_t at = LOG_FILE_HEADER + 8; at + 8 <= size; at += 8) {
        log_put_u32(bytes + at, LOG_BATCH_MAGIC);
        log_put_u32(bytes + at + 4, LOG_BATCH_BYTES - 4096);
    }
    return bytes;
}

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The thread sanitizer looks at the whole range of each memmem. */
#if defined(__SANITIZE_THREAD__)
enum { SMALLER = 64 };
#else
enum { SMALLER = 1 };
#endif

static void false_beginnings_of_batches_cost_time_in_proportion(void **state)
{
    (void)state;
    enum { SIZE = 3 << 20 };
    if (SMALLER > 1)
        skip();
    unsigned char *bytes = make_false_marks(SIZE);
    /* The old cost: a checksum of the length that each mark claims. */
    uint64_t start = cpu_ns();
    volatile uint32_t crc = log_crc(0, bytes, LOG_BATCH_BYTES);
    (void)crc;
    const uint64_t one = cpu_ns() - start;
    log_contents read;
    log_problem problem;
    start = cpu_ns();
    assert_true(log_read_bytes(bytes, SIZE, &read, &problem));
    const uint64_t taken = cpu_ns() - start;
    assert_int_equal(read.damages, 1);
    assert_int_equal(read.count, 0);
    log_contents_free(&read);
    if (taken >= 20000 * one) /* there are 390,000 marks */
        fail_msg("%" PRIu64 " ms, where one checksum takes %" PRIu64 " us", taken / 1000000, one / 1000);
    free(bytes);
}

/* A batch behind the false ones is found, wherever it is. */
static void a_whole_batch_behind_false_beginnings_is_found(void **state)
{
    (void)state;
    enum { SIZE = (2 << 20) / SMALLER };
    whole_log *made = make_log(90);
    const size_t batch = made->size - LOG_FILE_HEADER;
    static const size_t places[] = {200, 4096, SIZE / 32 + 1, SIZE / 2, SIZE - 20000};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        unsigned char *bytes = make_false_marks(SIZE);
        memcpy(bytes + places[i], made->bytes + LOG_FILE_HEADER, batch);
        log_contents read;
        log_problem problem;
        assert_true(places[i] + batch <= SIZE && log_read_bytes(bytes, SIZE, &read, &problem));
        assert_int_equal(read.count, 90);
        assert_memory_equal(read.records, made->records, 90 * sizeof *read.records);
        log_contents_free(&read);
        free(bytes);
    }
    free(made);
}

/* Batches with a right checksum and wrong entries, each within the one before: the entries of each are read once. */
static void a_batch_within_a_batch_is_not_searched_for(void **state)
{
    (void)state;
    enum { NESTED = 2000, SIZE = LOG_FILE_HEADER + NESTED * LOG_BATCH_HEADER };
    unsigned char *bytes = make_false_marks(SIZE);
    for (size_t at = SIZE; at > LOG_FILE_HEADER;) {
        at -= LOG_BATCH_HEADER;
        memset(bytes + at, 0, LOG_BATCH_HEADER);
        log_put_u32(bytes + at, LOG_BATCH_MAGIC);
        log_put_u32(bytes + at + 4, (uint32_t)(SIZE - at - LOG_BATCH_HEADER));
        log_put_u32(bytes + at + 12, 1); /* a record that is not there */
        log_put_u32(bytes + at + 8, log_crc(0, bytes + at + LOG_BATCH_CHECKED, SIZE - at - LOG_BATCH_CHECKED));
    }
    log_contents read;
    log_problem problem;
    assert_true(log_read_bytes(bytes, SIZE, &read, &problem));
    assert_int_equal(read.damages, 1);
    assert_non_null(strstr(read.damage[0].text, "bytes up to the end are left out"));
    log_contents_free(&read);
    free(bytes);
}

static void records_beyond_the_limit_of_host_memory_are_refused(void **state)
{
    (void)state;
    whole_log *made = make_log(RECORDS);
    scratch_file file = scratch_write_bytes(made->bytes, made->size);
    log_contents read;
    log_problem problem;
    assert_false(log_read_file(file.path, 300 * sizeof(strata_log_record), &read, &problem));
    assert_true(problem.too_large);
    assert_non_null(strstr(problem.text, "the records need more than "));
    assert_null(read.records);
    assert_true(log_read_file(file.path, RECORDS * sizeof(strata_log_record), &read, &problem));
    assert_int_equal(read.count, RECORDS);
    assert_int_equal(read.records[3].number, made->records[3].number);
    /* Sorting takes as much again. */
    strata_log_record first = read.records[0];
    read.records[0] = read.records[RECORDS - 1];
    read.records[RECORDS - 1] = first;
    assert_false(log_sort_within(read.records, RECORDS, RECORDS * sizeof first, &problem));
    assert_true(problem.too_large);
    assert_true(log_sort_within(read.records, RECORDS, 2 * RECORDS * sizeof first, &problem));
    log_contents_free(&read);
    scratch_remove(&file);
    free(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_encoded_is_read_back),
        cmocka_unit_test(a_log_that_was_cut_off_anywhere_is_read_up_to_there),
        cmocka_unit_test(damage_anywhere_is_noticed_and_its_place_is_said),
        cmocka_unit_test(a_log_that_is_damaged_in_the_middle_is_read_before_and_behind_that),
        cmocka_unit_test(a_log_that_grows_is_read_piece_by_piece),
        cmocka_unit_test(a_long_file_is_read_as_it_is_out_of_memory),
        cmocka_unit_test(a_compressed_file_that_is_cut_off_is_read_up_to_there),
        cmocka_unit_test(what_is_no_log_is_refused_by_its_beginning),
        cmocka_unit_test(entries_that_make_no_sense_are_refused),
        cmocka_unit_test(the_checksum_is_that_of_zlib),
        cmocka_unit_test(records_are_sorted_and_those_of_one_time_keep_their_order),
        cmocka_unit_test(moments_are_read_in_three_ways),
        cmocka_unit_test(a_time_of_day_is_the_clocks_on_the_days_that_it_is_set),
        cmocka_unit_test(a_log_is_a_trace_binary_or_csv),
        cmocka_unit_test(a_log_that_is_no_good_trace_is_refused),
        cmocka_unit_test(false_beginnings_of_batches_cost_time_in_proportion),
        cmocka_unit_test(a_whole_batch_behind_false_beginnings_is_found),
        cmocka_unit_test(a_batch_within_a_batch_is_not_searched_for),
        cmocka_unit_test(records_beyond_the_limit_of_host_memory_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
