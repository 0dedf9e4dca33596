/* The encoder, and its checksum. */
#include "resources/logging/binary.h"

#include "core/base/escape.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* ---- CRC-32, eight bytes at a time ---- */

static uint32_t tables[8][256]; /* written once, before crc_once is done */
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
        tables[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            tables[k][i] = tables[k - 1][i] >> 8 ^ tables[0][tables[k - 1][i] & 0xff];
}

uint32_t log_crc(uint32_t crc, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    pthread_once(&crc_once, make_tables);
    crc = ~crc;
    for (; count >= 8; at += 8, count -= 8) {
        uint32_t low = crc ^ log_get_u32(at), high = log_get_u32(at + 4);
        crc = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff] ^ tables[5][low >> 16 & 0xff] ^ tables[4][low >> 24] ^
              tables[3][high & 0xff] ^ tables[2][high >> 8 & 0xff] ^ tables[1][high >> 16 & 0xff] ^
              tables[0][high >> 24];
    }
    for (; count; count--)
        crc = crc >> 8 ^ tables[0][(crc ^ *at++) & 0xff];
    return ~crc;
}

/* ---- numbers ---- */

typedef struct output {
    unsigned char *at;
} output;

static void put_byte(output *to, unsigned byte)
{
    *to->at++ = (unsigned char)byte;
}

static void put_number(output *to, uint64_t number)
{
    for (; number >= 0x80; number >>= 7)
        put_byte(to, (unsigned)(number & 0x7f) | 0x80);
    put_byte(to, (unsigned)number);
}

static void put_text(output *to, const char *text, size_t length)
{
    put_number(to, length);
    memcpy(to->at, text, length);
    to->at += length;
}

/* ---- definitions ---- */

static void define_thread(log_encoder *self, output *to, const strata_log_record *record, unsigned index)
{
    if (self->threads[index].used && self->threads[index].thread == record->thread &&
        self->threads[index].id == record->thread_id)
        return;
    self->threads[index].used = true;
    self->threads[index].thread = record->thread;
    self->threads[index].id = record->thread_id;
    self->threads[index].number = 0;
    put_byte(to, LOG_ENTRY_THREAD);
    put_byte(to, index);
    put_number(to, record->thread);
    put_number(to, record->thread_id);
}

static void define_stream(log_encoder *self, output *to, const strata_log_record *record, unsigned index)
{
    if (self->streams[index].used && self->streams[index].handle == record->stream &&
        self->streams[index].id == record->stream_id)
        return;
    self->streams[index].used = true;
    self->streams[index].handle = record->stream;
    self->streams[index].id = record->stream_id;
    put_byte(to, LOG_ENTRY_STREAM);
    put_byte(to, index);
    put_number(to, record->stream);
    put_number(to, record->stream_id);
}

static void define_tag(log_encoder *self, output *to, strata_tag tag)
{
    strata_tag *known = &self->tags[tag % LOG_TAGS];
    if (tag == 0 || *known == tag)
        return;
    *known = tag;
    const char *name = strata_tag_name(tag);
    put_byte(to, LOG_ENTRY_TAG);
    put_number(to, tag);
    put_text(to, name, strlen(name));
}

/* ---- records ---- */

typedef struct previous {
    uint64_t time, address;
    int thread_index, stream_index; /* -1: none */
} previous;

static unsigned what_it_has(const log_encoder *self, const strata_log_record *record, const previous *before,
                            unsigned thread, unsigned stream)
{
    unsigned has = 0;
    has |= before->thread_index != (int)thread ? LOG_HAS_THREAD : 0;
    has |= before->stream_index != (int)stream ? LOG_HAS_STREAM : 0;
    has |= record->number != self->threads[thread].number + 1 ? LOG_HAS_NUMBER : 0;
    has |= record->status != STRATA_SUCCESS ? LOG_HAS_STATUS : 0;
    has |= record->flags & STRATA_LOG_FLAG_DURATION ? LOG_HAS_DURATION : 0;
    has |= record->generation || record->address || record->slot ? LOG_HAS_BLOCK : 0;
    has |= record->tag ? LOG_HAS_TAG : 0;
    has |= record->access || record->alignment ? LOG_HAS_MORE : 0;
    return has;
}

static unsigned logarithm(uint64_t power)
{
    return power ? (unsigned)__builtin_ctzll(power) : 0;
}

static void put_record(log_encoder *self, output *to, const strata_log_record *record, previous *before)
{
    unsigned thread = log_thread_index(record->thread), stream = log_stream_index(record->stream, record->stream_id);
    define_thread(self, to, record, thread);
    define_stream(self, to, record, stream);
    define_tag(self, to, record->tag);
    unsigned has = what_it_has(self, record, before, thread, stream);
    put_byte(to, (unsigned)record->kind | (record->flags & 0xf) << 4);
    put_byte(to, has);
    if (has & LOG_HAS_THREAD)
        put_byte(to, thread);
    if (has & LOG_HAS_STREAM)
        put_byte(to, stream);
    if (has & LOG_HAS_NUMBER)
        put_number(to, record->number);
    if (has & LOG_HAS_STATUS)
        put_byte(to, (unsigned)record->status);
    if (has & LOG_HAS_DURATION)
        put_number(to, record->duration_ns);
    if (has & LOG_HAS_BLOCK) {
        put_number(to, log_fold(record->address - before->address));
        put_number(to, record->slot);
        put_number(to, record->generation);
        before->address = record->address;
    }
    if (has & LOG_HAS_TAG)
        put_number(to, record->tag);
    if (has & LOG_HAS_MORE)
        put_byte(to, logarithm(record->alignment) << 2 | (unsigned)record->access);
    put_number(to, log_fold(record->monotonic_ns - before->time));
    put_number(to, record->requested);
    put_number(to, log_fold(record->bytes - record->requested));
    before->time = record->monotonic_ns;
    before->thread_index = (int)thread;
    before->stream_index = (int)stream;
    self->threads[thread].number = record->number;
}

static void put_stack(log_encoder *self, output *to, const char *text)
{
    if (self->text)
        return;
    put_byte(to, LOG_ENTRY_TEXT);
    put_text(to, text, strata_text_cut(text, LOG_TEXT_ROOM));
    self->text = true;
}

/* A batch can be read without those before it. */
static void forget_definitions(log_encoder *self)
{
    memset(self->threads, 0, sizeof self->threads);
    memset(self->streams, 0, sizeof self->streams);
    memset(self->tags, 0, sizeof self->tags);
}

size_t log_encode_batch(log_encoder *self, const strata_log_record *records, size_t count, const char *stack_text,
                        uint64_t dropped, unsigned char *to, size_t *bytes)
{
    output out = {to + LOG_BATCH_HEADER};
    previous before = {.time = records[0].monotonic_ns, .thread_index = -1, .stream_index = -1};
    forget_definitions(self);
    put_stack(self, &out, stack_text);
    size_t written = 0;
    while (written < count && out.at - to <= LOG_BATCH_ROOM - LOG_RECORD_ROOM)
        put_record(self, &out, &records[written++], &before);
    *bytes = (size_t)(out.at - to);
    log_put_u32(to, LOG_BATCH_MAGIC);
    log_put_u32(to + 4, (uint32_t)(*bytes - LOG_BATCH_HEADER));
    log_put_u32(to + 12, (uint32_t)written);
    log_put_u64(to + 16, dropped);
    log_put_u64(to + 24, records[0].monotonic_ns);
    log_put_u64(to + 32, records[0].wall_ns);
    log_put_u32(to + 8, log_crc(0, to + LOG_BATCH_CHECKED, *bytes - LOG_BATCH_CHECKED));
    return written;
}

void log_encode_header(log_encoder *self, int device, uint64_t wall_ns, unsigned char to[LOG_FILE_HEADER])
{
    memset(self, 0, sizeof *self);
    memset(to, 0, LOG_FILE_HEADER);
    memcpy(to, LOG_FILE_MAGIC, 8);
    log_put_u32(to + 8, LOG_FILE_VERSION);
    log_put_u32(to + 12, LOG_FILE_HEADER);
    log_put_u32(to + 20, (uint32_t)getpid());
    log_put_u32(to + 24, (uint32_t)device);
    log_put_u64(to + 32, wall_ns);
    log_put_u32(to + 16, log_crc(0, to + LOG_FILE_CHECKED, LOG_FILE_HEADER - LOG_FILE_CHECKED));
}
