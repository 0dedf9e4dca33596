/* Stack texts and sizes. The input is a text: it is built into a stack, which is destroyed again, and read as a size.
 *
 * Besides the library's layers there is one with an option of every type, which checks the values that it is given. */
#include "fuzz/begin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_LIMIT = 2048, MADE_LIMIT = 40 };

/* ---- a layer with an option of every type ---- */

typedef struct layer_options {
    bool flag;
    uint64_t count, size, duration;
    int colour;
    char text[256];
} layer_options;

static strata_resource layers[MADE_LIMIT];
static size_t made, ended;

static void end_layer(strata_resource *self)
{
    (void)self;
    ended++;
}

static const strata_resource_ops layer_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "plain",
    .destroy = end_layer,
};

static strata_status make_layer(int device, const void *given, strata_resource **out)
{
    const layer_options *options = given;
    assert_int_equal(device, 0);
    assert_true(options->colour >= 0 && options->colour < 3);
    assert_non_null(memchr(options->text, '\0', sizeof options->text));
    assert_true(made < MADE_LIMIT);
    layers[made] = (strata_resource){.ops = &layer_ops};
    *out = &layers[made++];
    return STRATA_SUCCESS;
}

static const strata_option options[] = {
    {"flag", STRATA_OPTION_BOOL, offsetof(layer_options, flag), NULL, "a switch"},
    {"count", STRATA_OPTION_UINT, offsetof(layer_options, count), NULL, "a number"},
    {"size", STRATA_OPTION_SIZE, offsetof(layer_options, size), NULL, "bytes"},
    {"wait", STRATA_OPTION_DURATION, offsetof(layer_options, duration), NULL, "nanoseconds"},
    {"colour", STRATA_OPTION_CHOICE, offsetof(layer_options, colour), "red|green|dark-blue", "one of three"},
    {"text", STRATA_OPTION_STRING, offsetof(layer_options, text), NULL, "words"},
};

static const strata_layer plain = {
    .size = sizeof(strata_layer),
    .name = "plain",
    .help = "forwards everything",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_size = sizeof(layer_options),
    .create = make_layer,
};

/* ---- what must hold ---- */

/* A built stack keeps its text, allocates memory and frees it, unless its purpose is to refuse. */
static void check_stack(strata_stack *stack, const char *text)
{
    assert_string_equal(strata_stack_text(stack), text);
    if (strstr(text, "fault"))
        return;
    strata_resource *top = strata_stack_top(stack);
    strata_request request = {.bytes = 1000};
    strata_block block;
    strata_status status = strata_resource_allocate(top, &request, &block);
    if (status != STRATA_SUCCESS) {
        bool said = status == STRATA_ERROR_OUT_OF_BUDGET && strstr(text, "budget"); /* its limit may be that small, */
        check_status(status, said ? status : STRATA_ERROR_OUT_OF_MEMORY);           /* and so may max_size */
        return;
    }
    check_status(strata_stack_destroy(stack), STRATA_ERROR_BUSY);
    check_ok(strata_resource_deallocate(top, &block, NULL));
}

/* A refusal is a status that the header names, with a message and, for a wrong text, the position. */
static void check_refusal(strata_status status, size_t length)
{
    const strata_error *error = strata_last_error();
    assert_int_equal(error->status, status);
    assert_true(error->message[0] != '\0');
    size_t position = 0;
    switch (status) {
    case STRATA_ERROR_SYNTAX:
        assert_int_equal(sscanf(error->message, "stack text, character %zu ", &position), 1);
        assert_true(position >= 1 && position <= length + 1);
        return;
    case STRATA_ERROR_INVALID_VALUE:
    case STRATA_ERROR_OUT_OF_MEMORY:
    case STRATA_ERROR_UNSUPPORTED:
    case STRATA_ERROR_DRIVER:
        return;
    default:
        fail_msg("a text was refused with %s: %s", strata_status_name(status), error->message);
    }
}

static strata_status try_text(const char *text)
{
    strata_sim_accounts before = fuzz_accounts();
    made = ended = 0;
    strata_stack *stack;
    strata_status status = strata_stack_create(text, 0, &stack);
    if (status == STRATA_SUCCESS) {
        check_stack(stack, text);
        check_ok(strata_stack_destroy(stack));
    } else {
        assert_null(stack);
        check_refusal(status, strlen(text));
    }
    assert_int_equal(made, ended);
    fuzz_check_accounts(&before);
    return status;
}

/* A size that was read can be written in digits and read again, and means the same in a larger unit. */
static void check_size(const char *text)
{
    uint64_t bytes = 1, again = 0;
    strata_status status = strata_parse_size(text, &bytes);
    if (status != STRATA_SUCCESS) {
        check_status(status, STRATA_ERROR_SYNTAX);
        assert_true(bytes == 0);
        return;
    }
    char written[64];
    snprintf(written, sizeof written, "%llu", (unsigned long long)bytes);
    check_ok(strata_parse_size(written, &again));
    assert_true(again == bytes);
    snprintf(written, sizeof written, "%llu.000 KiB", (unsigned long long)(bytes >> 10));
    check_ok(strata_parse_size(written, &again));
    assert_true(again == bytes >> 10 << 10);
}

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    fuzz_begin();
    check_ok(strata_layer_register(&plain));
    return 0;
}

/* Inputs must not write files or memory shared with other processes. */
static bool reaches_outside(const char *text)
{
    return strstr(text, "file") || strstr(text, "shared");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > TEXT_LIMIT)
        return 0;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (!reaches_outside(text))
        assert_int_equal(try_text(text), try_text(text));
    check_size(text);
    free(text);
    return 0;
}
