/* Shared by the tests of replays: trace files made from text, in a folder of their own. */
#ifndef STRATA_TESTS_SUPPORT_REPLAY_H
#define STRATA_TESTS_SUPPORT_REPLAY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRACE_HEADER "op,id,bytes,stream,time_us\n"

typedef struct scratch_file {
    char path[64];
} scratch_file;

/* Writes `length` bytes to a new file, which scratch_remove() removes. */
static inline scratch_file scratch_write_bytes(const void *bytes, size_t length)
{
    scratch_file file = {"/tmp/strata-trace-XXXXXX"};
    int descriptor = mkstemp(file.path);
    assert_true(descriptor >= 0);
    FILE *stream = fdopen(descriptor, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(bytes, 1, length, stream), length);
    assert_int_equal(fclose(stream), 0);
    return file;
}

static inline scratch_file scratch_write(const char *text)
{
    return scratch_write_bytes(text, strlen(text));
}

static inline void scratch_remove(const scratch_file *file)
{
    unlink(file->path);
}

/* A text that grows. */
typedef struct text_builder {
    char *text;
    size_t length;
    FILE *stream;
} text_builder;

static inline void text_begin(text_builder *builder)
{
    *builder = (text_builder){0};
    builder->stream = open_memstream(&builder->text, &builder->length);
    assert_non_null(builder->stream);
}

static inline scratch_file text_end_as_file(text_builder *builder)
{
    assert_int_equal(fclose(builder->stream), 0);
    scratch_file file = scratch_write_bytes(builder->text, builder->length);
    free(builder->text);
    return file;
}

/* A random generator with the same numbers in every run. */
static inline uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

#endif
