/* The reader of binary logs. An input is read as a file, and then as the entries of a batch with a correct checksum,
 * which mutations would hardly ever hit. The records are encoded and read again, and must be the same. */
#include "fuzz/begin.h"

#include "resources/logging/binary.h"
#include "tools/log/log_reader.h"

#include <stdlib.h>
#include <string.h>

static log_encoder encoder;

static void check_order(const log_contents *read)
{
    for (size_t i = 0; i < read->count; i++) {
        const strata_log_record *record = &read->records[i];
        assert_true(record->kind > 0 && record->kind < STRATA_LOG_KIND_LIMIT);
        assert_true(i == 0 || record->monotonic_ns >= record[-1].monotonic_ns);
    }
}

/* Returns the length of a log of the same records. */
static size_t encode_again(const log_contents *read, unsigned char *to)
{
    size_t size = LOG_FILE_HEADER, bytes;
    log_encode_header(&encoder, read->device, read->created_ns, to);
    for (size_t done = 0; done < read->count; size += bytes) {
        size_t count = read->count - done < LOG_BATCH_ROOM / LOG_RECORD_ROOM ? read->count - done
                                                                             : LOG_BATCH_ROOM / LOG_RECORD_ROOM;
        done += log_encode_batch(&encoder, &read->records[done], count, "", read->dropped, to + size, &bytes);
        assert_true(bytes <= LOG_BATCH_ROOM);
    }
    return size;
}

static void check_round(const log_contents *read)
{
    log_contents again;
    log_problem problem;
    unsigned char *bytes = malloc(LOG_FILE_HEADER + LOG_BATCH_ROOM + read->count * LOG_RECORD_ROOM * 2);
    assert_non_null(bytes);
    size_t size = encode_again(read, bytes);
    if (!log_read_bytes(bytes, size, &again, &problem))
        fail_msg("a log that was written cannot be read: %s", problem.text);
    assert_true(again.count == read->count && again.torn == 0 && again.damages == 0);
    for (size_t i = 0; i < read->count; i++)
        assert_memory_equal(&again.records[i], &read->records[i], sizeof again.records[i]);
    log_contents_free(&again);
    free(bytes);
}

static void read_and_check(const unsigned char *bytes, size_t size)
{
    log_contents read;
    log_problem problem = {.text = ""};
    if (!log_read_bytes(bytes, size, &read, &problem)) {
        assert_true(strncmp(problem.text, "byte ", 5) == 0);
        assert_null(read.records);
        return;
    }
    check_order(&read);
    assert_true(read.torn < size || size == 0);
    check_round(&read);
    log_contents_free(&read);
}

static void seal(unsigned char *batch, size_t size, uint32_t records)
{
    log_put_u32(batch + 12, records);
    log_put_u32(batch + 8, log_crc(0, batch + LOG_BATCH_CHECKED, LOG_BATCH_HEADER - LOG_BATCH_CHECKED + size));
}

/* Used if the batch's own count is wrong. */
static uint32_t count_records(const unsigned char *bytes, size_t size)
{
    static const char words[] = " records holds ";
    log_contents read;
    log_problem problem = {.text = ""};
    if (!log_read_bytes(bytes, size, &read, &problem))
        return 0;
    log_contents_free(&read);
    const char *holds = read.damages ? strstr(read.damage[0].text, words) : NULL;
    return holds ? (uint32_t)strtoul(holds + sizeof words - 1, NULL, 10) : 0;
}

static void read_as_entries(const uint8_t *data, size_t size)
{
    size_t whole = LOG_FILE_HEADER + LOG_BATCH_HEADER + size;
    unsigned char *bytes = calloc(1, whole);
    assert_non_null(bytes);
    log_encode_header(&encoder, 1, 5, bytes);
    unsigned char *batch = bytes + LOG_FILE_HEADER;
    log_put_u32(batch, LOG_BATCH_MAGIC);
    log_put_u32(batch + 4, (uint32_t)size);
    log_put_u64(batch + 24, 1000);
    log_put_u64(batch + 32, 5000);
    memcpy(batch + LOG_BATCH_HEADER, data, size);
    seal(batch, size, 0);
    seal(batch, size, count_records(bytes, whole));
    read_and_check(bytes, whole);
    free(bytes);
}

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    assert_true(setenv("CMOCKA_TEST_ABORT", "1", 1) == 0);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_and_check(data, size);
    if (size < LOG_BATCH_BYTES)
        read_as_entries(data, size);
    return 0;
}
