/* The decoder. Every step goes through `input`: it never reads beyond the bytes. */
#include "tools/log/log_reader.h"

#include "core/base/escape.h"
#include "core/base/size_text.h"
#include "tools/log/log_crc_index.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- bytes ---- */

/* The rest of a batch. The first error is kept; everything after it reads as zero. */
typedef struct input {
    const unsigned char *start, *at, *end;
    const char *wrong; /* NULL: no error */
} input;

static void go_wrong(input *in, const char *what)
{
    if (!in->wrong)
        in->wrong = what;
    in->end = in->at;
}

static unsigned get_byte(input *in)
{
    if (in->at != in->end)
        return *in->at++;
    go_wrong(in, "truncated entry");
    return 0;
}

static uint64_t get_number(input *in)
{
    uint64_t number = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        unsigned byte = get_byte(in);
        number |= (uint64_t)(byte & 0x7f) << shift;
        if (shift == 63 && byte > 1)
            break;
        if (byte < 0x80)
            return number;
    }
    go_wrong(in, "number of more than 64 bits");
    return 0;
}

static uint64_t get_number_up_to(input *in, uint64_t most, const char *wrong)
{
    uint64_t number = get_number(in);
    if (number <= most)
        return number;
    go_wrong(in, wrong);
    return 0;
}

/* Reads a text without zero bytes. NULL: there is none. */
static const char *get_text(input *in, size_t most, size_t *length)
{
    *length = (size_t)get_number_up_to(in, most, "text too long");
    const char *text = (const char *)in->at;
    if (*length > (size_t)(in->end - in->at))
        go_wrong(in, "truncated text");
    else if (memchr(text, 0, *length))
        go_wrong(in, "zero byte in a text");
    if (in->wrong)
        return NULL;
    in->at += *length;
    return text;
}

/* ---- definitions of a file ---- */

typedef log_decoder decoder;

struct log_decoder {
    log_contents *to;
    uint64_t offset; /* of the next byte */
    size_t capacity;
    struct {
        uint64_t thread, number;
        uint32_t id;
        bool used;
    } threads[LOG_THREADS];
    struct {
        uint64_t handle;
        uint32_t id;
        bool used;
    } streams[LOG_STREAMS];
    struct {
        uint64_t number; /* as in the file; 0: none */
        strata_tag tag;
    } tags[LOG_TAGS];
    uint64_t most;        /* bytes of records */
    uint64_t skipped;     /* damaged bytes so far, without a whole batch after them */
    log_problem skipping; /* of the first of them */
    bool no_memory, too_large;
    log_crc_index index; /* of the bytes that are searched for a whole batch */
};

static void define_thread(decoder *self, input *in)
{
    unsigned place = get_byte(in);
    uint64_t thread = get_number(in);
    uint32_t id = (uint32_t)get_number_up_to(in, UINT32_MAX, "thread number too large");
    if (in->wrong || place >= LOG_THREADS) {
        go_wrong(in, "thread index out of range");
        return;
    }
    self->threads[place].used = true;
    self->threads[place].thread = thread;
    self->threads[place].id = id;
    self->threads[place].number = 0;
}

static void define_stream(decoder *self, input *in)
{
    unsigned place = get_byte(in);
    uint64_t handle = get_number(in);
    uint32_t id = (uint32_t)get_number_up_to(in, UINT32_MAX, "stream number too large");
    if (in->wrong || place >= LOG_STREAMS) {
        go_wrong(in, "stream index out of range");
        return;
    }
    self->streams[place].used = true;
    self->streams[place].handle = handle;
    self->streams[place].id = id;
}

static void define_tag(decoder *self, input *in)
{
    char name[256];
    size_t length;
    uint64_t number = get_number_up_to(in, UINT32_MAX, "tag number too large");
    const char *text = get_text(in, sizeof name - 1, &length);
    if (!text || number == 0) {
        go_wrong(in, "tag without a number");
        return;
    }
    memcpy(name, text, length);
    name[length] = '\0';
    self->tags[number % LOG_TAGS].number = number;
    if (strata_tag_intern(name, &self->tags[number % LOG_TAGS].tag) == STRATA_SUCCESS)
        return;
    self->no_memory = true;
    go_wrong(in, "out of host memory for the tags");
}

static void define_stack(decoder *self, input *in)
{
    size_t length;
    char raw[LOG_STACK_ROOM];
    const char *text = get_text(in, LOG_STACK_ROOM - 1, &length);
    if (!text)
        return;
    memcpy(raw, text, length);
    raw[length] = '\0';
    strata_escape(self->to->stack, sizeof self->to->stack, raw);
}

/* ---- records ---- */

typedef struct previous {
    uint64_t time, address;
    unsigned thread, stream; /* positions */
    bool any;
} previous;

static unsigned get_place(input *in, unsigned has, unsigned before, bool any, unsigned limit, const char *wrong)
{
    unsigned place = has ? get_byte(in) : before;
    if ((has || any) && place < limit)
        return place;
    go_wrong(in, wrong);
    return 0;
}

static void read_parties(decoder *self, input *in, unsigned has, previous *before, strata_log_record *record)
{
    before->thread =
        get_place(in, has & LOG_HAS_THREAD, before->thread, before->any, LOG_THREADS, "record without a thread");
    before->stream =
        get_place(in, has & LOG_HAS_STREAM, before->stream, before->any, LOG_STREAMS, "record without a stream");
    before->any = true;
    if (!self->threads[before->thread].used)
        go_wrong(in, "record of an undefined thread");
    if (!self->streams[before->stream].used)
        go_wrong(in, "record of an undefined stream");
    record->thread = self->threads[before->thread].thread;
    record->thread_id = self->threads[before->thread].id;
    record->stream = self->streams[before->stream].handle;
    record->stream_id = self->streams[before->stream].id;
    record->number = has & LOG_HAS_NUMBER ? get_number(in) : self->threads[before->thread].number + 1;
    self->threads[before->thread].number = record->number;
}

static void read_block(input *in, previous *before, strata_log_record *record)
{
    before->address += log_unfold(get_number(in));
    record->address = before->address;
    record->slot = (uint32_t)get_number_up_to(in, UINT32_MAX, "block number too large");
    record->generation = get_number(in);
}

static void read_tag(decoder *self, input *in, strata_log_record *record)
{
    uint64_t number = get_number(in);
    if (number == 0 || self->tags[number % LOG_TAGS].number != number)
        go_wrong(in, "record with an undefined tag");
    else
        record->tag = self->tags[number % LOG_TAGS].tag;
}

static void read_more(input *in, strata_log_record *record)
{
    unsigned more = get_byte(in);
    record->access = (strata_access)(more & 3);
    record->alignment = more >> 2 ? UINT64_C(1) << (more >> 2) : 0;
}

static bool add_record(decoder *self, const strata_log_record *record)
{
    log_contents *to = self->to;
    if (to->count == self->capacity) {
        const size_t limit = (size_t)(self->most / sizeof *record);
        size_t capacity = self->capacity ? self->capacity + self->capacity / 2 : 4096;
        capacity = capacity < limit ? capacity : limit;
        self->too_large = capacity <= to->count;
        if (self->too_large)
            return false;
        strata_log_record *grown = realloc(to->records, capacity * sizeof *grown);
        if (!grown)
            return false;
        to->records = grown;
        self->capacity = capacity;
    }
    to->records[to->count++] = *record;
    return true;
}

static void read_record(decoder *self, input *in, unsigned first, previous *before, uint64_t wall_ahead)
{
    strata_log_record record = {
        .kind = (strata_log_kind)(first & 0xf), .flags = first >> 4, .device = self->to->device};
    if (record.kind >= STRATA_LOG_KIND_LIMIT) {
        go_wrong(in, "entry of an unknown kind");
        return;
    }
    unsigned has = get_byte(in);
    read_parties(self, in, has, before, &record);
    if (has & LOG_HAS_STATUS)
        record.status = (strata_status)get_byte(in);
    if (has & LOG_HAS_DURATION) {
        record.duration_ns = get_number(in);
        record.flags |= STRATA_LOG_FLAG_DURATION;
    }
    if (has & LOG_HAS_BLOCK)
        read_block(in, before, &record);
    if (has & LOG_HAS_TAG)
        read_tag(self, in, &record);
    if (has & LOG_HAS_MORE)
        read_more(in, &record);
    before->time += log_unfold(get_number(in));
    record.requested = get_number(in);
    record.bytes = record.requested + log_unfold(get_number(in));
    record.monotonic_ns = before->time;
    record.wall_ns = before->time + wall_ahead;
    if (in->wrong)
        return;
    if (!add_record(self, &record)) {
        self->no_memory = !self->too_large;
        go_wrong(in, "out of host memory for the records");
        return;
    }
    self->to->late += (record.flags & STRATA_LOG_FLAG_LATE) != 0;
}

static void read_entry(decoder *self, input *in, previous *before, uint64_t wall_ahead)
{
    unsigned first = get_byte(in);
    switch (first) {
    case LOG_ENTRY_TEXT:
        define_stack(self, in);
        return;
    case LOG_ENTRY_THREAD:
        define_thread(self, in);
        return;
    case LOG_ENTRY_STREAM:
        define_stream(self, in);
        return;
    case LOG_ENTRY_TAG:
        define_tag(self, in);
        return;
    default:
        if ((first & 0xf) == 0)
            go_wrong(in, "entry of an unknown kind");
        else
            read_record(self, in, first, before, wall_ahead);
    }
}

/* ---- batches and files ---- */

static bool refuse(log_problem *problem, const char *format, ...) STRATA_PRINTF(2, 3);

static bool refuse(log_problem *problem, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem->text, sizeof problem->text, format, arguments);
    problem->too_large = false;
    va_end(arguments);
    return false;
}

static bool refuse_size(uint64_t most, log_problem *problem)
{
    refuse(problem, "the records need more than %s of host memory", strata_size_text(most).text);
    problem->too_large = true;
    return false;
}

typedef enum batch_state {
    BATCH_WHOLE,
    BATCH_PART, /* its end is missing */
    BATCH_BAD,
} batch_state;

/* Reads the entries of a batch, whose checksum is correct. False: `problem` has the reason, nothing is kept. */
static bool read_batch(decoder *self, const unsigned char *bytes, uint64_t offset, size_t size, log_problem *problem)
{
    input in = {bytes + LOG_BATCH_HEADER, bytes + LOG_BATCH_HEADER, bytes + size, NULL};
    previous before = {.time = log_get_u64(bytes + 24)};
    const uint64_t wall_ahead = log_get_u64(bytes + 32) - before.time, late = self->to->late;
    const size_t first = self->to->count;
    while (in.at != in.end)
        read_entry(self, &in, &before, wall_ahead);
    const size_t count = self->to->count - first;
    if (!in.wrong && count == log_get_u32(bytes + 12)) {
        self->to->dropped = log_get_u64(bytes + 16);
        return true;
    }
    self->to->count = first;
    self->to->late = late;
    if (in.wrong)
        return refuse(problem, "byte %" PRIu64 ": %s", offset + (uint64_t)(in.at - bytes), in.wrong);
    return refuse(problem, "byte %" PRIu64 ": a batch of %" PRIu32 " records holds %zu", offset,
                  log_get_u32(bytes + 12), count);
}

static uint32_t crc_of(const unsigned char *bytes, size_t size)
{
    return log_crc(0, bytes + LOG_BATCH_CHECKED, size - LOG_BATCH_CHECKED);
}

/* State of the batch that begins here; *size: its bytes as its header says, if that is readable. */
static batch_state state_of_batch(const unsigned char *bytes, size_t rest, size_t *size)
{
    unsigned char magic[4];
    *size = 0;
    log_put_u32(magic, LOG_BATCH_MAGIC);
    if (memcmp(bytes, magic, rest < 4 ? rest : 4) != 0)
        return BATCH_BAD;
    if (rest < LOG_BATCH_HEADER)
        return BATCH_PART;
    const uint32_t length = log_get_u32(bytes + 4);
    *size = LOG_BATCH_HEADER + (size_t)length;
    if (length > LOG_BATCH_BYTES)
        return BATCH_BAD;
    return length > rest - LOG_BATCH_HEADER ? BATCH_PART : BATCH_WHOLE; /* if its checksum is right */
}

/* Likewise, with its checksum; `problem` describes a batch that is not whole. */
static batch_state check_batch(const unsigned char *bytes, uint64_t offset, size_t rest, size_t *size,
                               log_problem *problem)
{
    const batch_state state = state_of_batch(bytes, rest, size);
    const uint64_t length = *size - LOG_BATCH_HEADER;
    if (!*size)
        refuse(problem, "byte %" PRIu64 ": no batch begins here", offset);
    else if (state == BATCH_BAD)
        refuse(problem, "byte %" PRIu64 ": a batch of %" PRIu64 " bytes; expected at most %d", offset, length,
               LOG_BATCH_BYTES);
    else if (state == BATCH_PART)
        refuse(problem, "byte %" PRIu64 ": a batch of %" PRIu64 " bytes overlaps the next one", offset, length);
    if (state != BATCH_WHOLE)
        return state;
    const uint32_t crc = crc_of(bytes, *size), expected = log_get_u32(bytes + 8);
    if (crc == expected)
        return BATCH_WHOLE;
    refuse(problem, "byte %" PRIu64 ": the batch is damaged: its checksum is %08" PRIx32 ", expected %08" PRIx32,
           offset, crc, expected);
    return BATCH_BAD;
}

/* Finds the first whole batch from `at` on; returns `size` if there is none. Linear in the bytes, however many false
 * beginnings they contain: the checksums of all candidates come from one index. */
static size_t find_batch(decoder *self, const unsigned char *bytes, size_t at, size_t size)
{
    unsigned char magic[4];
    log_put_u32(magic, LOG_BATCH_MAGIC);
    for (; at < size; at++) {
        const unsigned char *found = memmem(bytes + at, size - at, magic, sizeof magic);
        size_t length;
        if (!found)
            return size;
        at = (size_t)(found - bytes);
        if (state_of_batch(found, size - at, &length) != BATCH_WHOLE)
            continue;
        if (!log_crc_index_make(&self->index, bytes, size)) {
            self->no_memory = true;
            return size;
        }
        if (log_crc_index_of(&self->index, at + LOG_BATCH_CHECKED, at + length) == log_get_u32(found + 8))
            return at;
    }
    return size;
}

static void forget_definitions(decoder *self)
{
    memset(self->threads, 0, sizeof self->threads);
    memset(self->streams, 0, sizeof self->streams);
    memset(self->tags, 0, sizeof self->tags);
}

static void note_damage(log_contents *to, const log_problem *problem, uint64_t left_out, uint64_t next, bool ends)
{
    if (to->damages++ >= LOG_DAMAGES)
        return;
    log_problem *note = &to->damage[to->damages - 1];
    snprintf(note->text, sizeof note->text, "%.360s", problem->text);
    size_t used = strlen(note->text);
    if (!left_out)
        snprintf(note->text + used, sizeof note->text - used, "; its entries are intact and were read");
    else if (ends)
        snprintf(note->text + used, sizeof note->text - used, "; %" PRIu64 " bytes up to the end are left out",
                 left_out);
    else
        snprintf(note->text + used, sizeof note->text - used, "; %" PRIu64 " bytes are left out, up to byte %" PRIu64,
                 left_out, next);
}

static bool read_header(const unsigned char *bytes, size_t size, log_contents *to, log_problem *problem)
{
    if (size == 0)
        return refuse(problem, "byte 0: the file is empty");
    if (size >= 7 && memcmp(bytes, "Thread,", 7) == 0)
        return refuse(problem, "byte 0: this is a CSV log; strata log reads binary logs, strata replay both");
    if (size >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0)
        return refuse(problem, "byte 0: this is a gzip file, not a plain log");
    if (size < 8 || memcmp(bytes, LOG_FILE_MAGIC, 8) != 0)
        return refuse(problem, "byte 0: not a Strata log");
    if (size < LOG_FILE_HEADER)
        return refuse(problem, "byte %zu: the file ends within its header", size);
    if (log_get_u32(bytes + 8) != LOG_FILE_VERSION)
        return refuse(problem, "byte 8: the log has version %" PRIu32 "; this program reads version %d",
                      log_get_u32(bytes + 8), LOG_FILE_VERSION);
    if (log_get_u32(bytes + 12) != LOG_FILE_HEADER ||
        log_get_u32(bytes + 16) != log_crc(0, bytes + LOG_FILE_CHECKED, LOG_FILE_HEADER - LOG_FILE_CHECKED))
        return refuse(problem, "byte 12: the header is damaged");
    to->process = log_get_u32(bytes + 20);
    to->device = (int32_t)log_get_u32(bytes + 24);
    to->created_ns = log_get_u64(bytes + 32);
    return true;
}

/* Skips bytes without a whole batch, which are reported when their number is known. Bytes that may begin a batch stay.
 */
static size_t skip(decoder *self, size_t size, const log_problem *problem)
{
    const size_t count = size - (LOG_BATCH_HEADER + LOG_BATCH_BYTES - 1);
    if (!self->skipped)
        self->skipping = *problem;
    self->skipped += count;
    forget_definitions(self);
    return count;
}

/* Reports damage that ends at `next`: the skipped bytes and `left_out` more. */
static void end_damage(decoder *self, const log_problem *problem, uint64_t left_out, uint64_t next, bool ends)
{
    note_damage(self->to, self->skipped ? &self->skipping : problem, left_out + self->skipped, next, ends);
    self->skipped = 0;
}

/* Reads a batch at *at and moves on, past damage if a whole batch follows. *waits: more bytes may complete it. False
 * without host memory. */
static bool read_next(decoder *self, const unsigned char *bytes, size_t size, bool last, size_t *at, bool *waits)
{
    log_problem problem;
    size_t length = 0;
    const uint64_t offset = self->offset + *at;
    batch_state state = check_batch(bytes + *at, offset, size - *at, &length, &problem);
    if (self->skipped && state == BATCH_WHOLE)
        end_damage(self, &problem, 0, offset, false);
    if (state == BATCH_WHOLE && read_batch(self, bytes + *at, offset, length, &problem)) {
        *at += length;
        return true;
    }
    if (self->no_memory || self->too_large)
        return false;
    /* What a right checksum vouches for was written as it is: nothing begins inside of it. */
    const size_t from = state == BATCH_WHOLE ? *at + length : *at + 1;
    const size_t next = find_batch(self, bytes, from, size), most = next - *at;
    if (self->no_memory)
        return false;
    bool whole = state != BATCH_WHOLE && most >= LOG_BATCH_HEADER && memcmp(bytes + *at, "SLBT", 4) == 0 &&
                 crc_of(bytes + *at, most) == log_get_u32(bytes + *at + 8);
    if (next == size && !whole && !last && most >= LOG_BATCH_HEADER + LOG_BATCH_BYTES) {
        *at += skip(self, most, &problem);
        return true;
    }
    if (next == size && !whole && (!last || state == BATCH_PART)) {
        if (last && self->skipped)
            end_damage(self, &problem, 0, offset, false);
        *waits = !last;
        self->to->torn = last ? most : 0;
        *at = last ? size : *at;
        return true;
    }
    if (whole) /* all but its length */
        whole = read_batch(self, bytes + *at, offset, most, &problem);
    else
        forget_definitions(self);
    end_damage(self, &problem, whole ? 0 : most, self->offset + next, next == size);
    *at = next;
    return !self->no_memory && !self->too_large;
}

log_decoder *log_decoder_make(log_contents *to, uint64_t most)
{
    log_decoder *self = calloc(1, sizeof *self);
    *to = (log_contents){0};
    if (self) {
        self->to = to;
        self->most = most;
    }
    return self;
}

bool log_decoder_read(log_decoder *self, const void *from, size_t size, bool last, size_t *used, log_problem *problem)
{
    const unsigned char *bytes = from;
    size_t at = 0;
    bool waits = false;
    *used = 0;
    if (self->offset == 0) {
        if (size < LOG_FILE_HEADER && !last)
            return true;
        if (!read_header(bytes, size, self->to, problem))
            return false;
        at = LOG_FILE_HEADER;
    }
    log_crc_index_forget(&self->index);
    while (at != size && !waits)
        if (!read_next(self, bytes, size, last, &at, &waits))
            return self->too_large ? refuse_size(self->most, problem) : refuse(problem, "out of host memory");
    self->offset += at;
    *used = at;
    return true;
}

void log_decoder_free(log_decoder *self)
{
    if (self)
        log_crc_index_free(&self->index);
    free(self);
}

bool log_read_bytes(const void *bytes, size_t size, log_contents *out, log_problem *problem)
{
    size_t used;
    log_decoder *self = log_decoder_make(out, LOG_MEMORY);
    if (!self)
        return refuse(problem, "out of host memory");
    bool read = log_decoder_read(self, bytes, size, true, &used, problem);
    log_decoder_free(self);
    if (read)
        read = log_sort_within(out->records, out->count, LOG_MEMORY, problem);
    if (!read)
        log_contents_free(out);
    return read;
}

bool log_begins_with(const char *line)
{
    return strcmp(line, "\x89SLOG") == 0; /* the magic up to its line end */
}

/* Merges two adjacent runs; `room` holds the first. */
static void merge(strata_log_record *records, size_t first, size_t count, strata_log_record *room)
{
    size_t from_room = 0, from_second = first, to = 0;
    memcpy(room, records, first * sizeof *room);
    while (from_room < first && from_second < count)
        records[to++] = records[from_second].monotonic_ns < room[from_room].monotonic_ns ? records[from_second++]
                                                                                         : room[from_room++];
    memcpy(&records[to], &room[from_room], (first - from_room) * sizeof *room);
}

/* How many records are in order from here on. */
static size_t run_length(const strata_log_record *records, size_t count)
{
    size_t length = 1;
    while (length < count && records[length].monotonic_ns >= records[length - 1].monotonic_ns)
        length++;
    return length;
}

bool log_sort_within(strata_log_record *records, size_t count, uint64_t most, log_problem *problem)
{
    const bool sorted = count == 0 || run_length(records, count) == count;
    if (!sorted && count > most / (2 * sizeof *records))
        return refuse_size(most, problem);
    return log_sort(records, count) || refuse(problem, "out of host memory");
}

/* Stable: merges neighbouring runs. */
bool log_sort(strata_log_record *records, size_t count)
{
    size_t runs = 2;
    if (count == 0 || run_length(records, count) == count)
        return true;
    strata_log_record *room = malloc(count * sizeof *room);
    while (room && runs > 1) {
        runs = 0;
        for (size_t at = 0; at < count; runs++) {
            size_t first = run_length(&records[at], count - at);
            size_t both = at + first < count ? first + run_length(&records[at + first], count - at - first) : first;
            merge(&records[at], first, both, room);
            at += both;
        }
    }
    free(room);
    return room != NULL;
}

void log_contents_free(log_contents *contents)
{
    free(contents->records);
    contents->records = NULL;
    contents->count = 0;
}
