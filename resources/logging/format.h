/* The binary log, `.slog`. docs/formats/slog.md has the layout of headers, batches and entries.
 *
 * A batch is one write with a checksum, so truncation and damage show. */
#ifndef STRATA_RESOURCES_LOGGING_FORMAT_H
#define STRATA_RESOURCES_LOGGING_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_FILE_MAGIC  "\x89SLOG\r\n\x1a" /* 8 bytes, without the zero */
#define LOG_BATCH_MAGIC UINT32_C(0x54424c53)

enum {
    LOG_FILE_VERSION = 1,

    LOG_FILE_HEADER = 40,
    LOG_FILE_CHECKED = 20, /* the CRC-32 covers what follows */

    LOG_BATCH_HEADER = 40,
    LOG_BATCH_CHECKED = 12,
    LOG_BATCH_BYTES = 1 << 20, /* most bytes of entries */

    /* Indexes in use at a time. */
    LOG_THREADS = 64,
    LOG_STREAMS = 64,
    LOG_TAGS = 1024,

    /* First byte of an entry: a record's flags << 4 | kind, or one of these. Numbers are LEB128, signed ones folded. */
    LOG_ENTRY_TEXT = 0x00,   /* length, bytes: text of the stack */
    LOG_ENTRY_THREAD = 0x10, /* index byte, number, system thread id */
    LOG_ENTRY_STREAM = 0x20, /* index byte, handle, stream id */
    LOG_ENTRY_TAG = 0x30,    /* tag, length, bytes */

    /* Second byte of a record: fields that follow, in this order. */
    LOG_HAS_THREAD = 0x01,   /* index byte; else as the previous record */
    LOG_HAS_STREAM = 0x02,   /* index byte; else as the previous record */
    LOG_HAS_NUMBER = 0x04,   /* else the thread's previous one plus 1 */
    LOG_HAS_STATUS = 0x08,   /* byte: a failure */
    LOG_HAS_DURATION = 0x10, /* nanoseconds */
    LOG_HAS_BLOCK = 0x20,    /* address (signed, relative to the previous block), slot, generation */
    LOG_HAS_TAG = 0x40,
    LOG_HAS_MORE = 0x80, /* byte: log2 of the alignment << 2 | access */
    /* Always last: time (signed ns since the previous record), requested bytes, usable less requested bytes (signed).
     */
};

/* CRC-32 of zlib; starts with 0, continues with its result. */
uint32_t log_crc(uint32_t crc, const void *bytes, size_t count);

static inline void log_put_u32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

static inline void log_put_u64(unsigned char *to, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

static inline uint32_t log_get_u32(const unsigned char *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static inline uint64_t log_get_u64(const unsigned char *from)
{
    return log_get_u32(from) | (uint64_t)log_get_u32(from + 4) << 32;
}

/* Moves the sign to the lowest bit: small differences stay small. */
static inline uint64_t log_fold(uint64_t difference)
{
    return difference << 1 ^ (difference >> 63 ? UINT64_MAX : 0);
}

static inline uint64_t log_unfold(uint64_t folded)
{
    return folded >> 1 ^ (folded & 1 ? UINT64_MAX : 0);
}

static inline unsigned log_thread_index(uint64_t thread)
{
    return (unsigned)(thread % LOG_THREADS);
}

static inline unsigned log_stream_index(uint64_t handle, uint32_t id)
{
    return (unsigned)((handle ^ handle >> 6 ^ handle >> 12 ^ (uint64_t)id * 31) % LOG_STREAMS);
}

#endif
