/* Stacks from texts: what is read, what is refused and how, and that a refused text leaves nothing half built. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/driver.h"

/* ---- a layer that notes what its text said ---- */

typedef struct test_options {
    bool flag;
    uint64_t count, size, duration;
    int colour;
    char text[256];
} test_options;

static test_options seen; /* of the last layer that was made */
static size_t made, ended;
static strata_status refusal; /* what the maker answers */

typedef struct test_layer {
    strata_resource resource;
} test_layer;

static test_layer layers[64];

static void end_layer(strata_resource *self)
{
    (void)self;
    ended++;
}

static const strata_resource_ops plain_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "plain",
    .destroy = end_layer,
};

static strata_status make_bare(int device, const void *options, strata_resource **out)
{
    (void)device, (void)options;
    test_layer *layer = &layers[made++ % 64];
    *layer = (test_layer){.resource.ops = &plain_ops};
    *out = &layer->resource;
    return STRATA_SUCCESS;
}

static strata_status make_layer(int device, const void *options, strata_resource **out)
{
    seen = *(const test_options *)options;
    return make_bare(device, NULL, out);
}

static strata_status refuse_to_make(int device, const void *options, strata_resource **out)
{
    (void)device, (void)options, (void)out;
    return strata_fail(refusal, "this layer never wants to be made");
}

static const strata_option options[] = {
    {"flag", STRATA_OPTION_BOOL, offsetof(test_options, flag), NULL, "a switch"},
    {"count", STRATA_OPTION_UINT, offsetof(test_options, count), NULL, "a number"},
    {"size", STRATA_OPTION_SIZE, offsetof(test_options, size), NULL, "bytes"},
    {"wait", STRATA_OPTION_DURATION, offsetof(test_options, duration), NULL, "nanoseconds"},
    {"colour", STRATA_OPTION_CHOICE, offsetof(test_options, colour), "red|green|dark-blue", "one of three"},
    {"text", STRATA_OPTION_STRING, offsetof(test_options, text), NULL, "words"},
};

static const strata_layer plain = {
    .size = sizeof(strata_layer),
    .name = "plain",
    .help = "forwards everything",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_size = sizeof(test_options),
    .create = make_layer,
};

static const strata_layer bare = {.size = sizeof(strata_layer), .name = "bare", .create = make_bare};
static const strata_layer unwilling = {.size = sizeof(strata_layer), .name = "unwilling", .create = refuse_to_make};

static int setup(void **state)
{
    (void)state;
    made = ended = 0;
    memset(&seen, 0, sizeof seen);
    return 0;
}

/* ---- good texts ---- */

static void read_text(const char *text)
{
    strata_stack *stack;
    check_ok(strata_stack_create(text, 0, &stack));
    assert_string_equal(strata_stack_text(stack), text);
    check_ok(strata_stack_destroy(stack));
    assert_int_equal(made, ended);
}

static void spaces_stand_wherever_words_end(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "direct",
        " direct ",
        "plain,direct",
        "plain , direct",
        "\tplain\n,\n\tdirect\n",
        "plain(),direct()",
        "plain ( ) , direct ( )",
        "plain(count=3,flag=on),direct",
        "  plain  (  count  =  3  ,  flag  =  on  )  ,  direct  ",
        "plain,plain,plain,direct",
        "bare(), direct",
        "async",
        "plain, async(pool=default)",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        setup(NULL);
        read_text(texts[i]);
        if (strstr(texts[i], "count")) {
            assert_true(seen.count == 3);
            assert_true(seen.flag);
        }
    }
}

static void layers_stand_in_the_order_of_the_text(void **state)
{
    (void)state;
    strata_stack *stack;
    check_ok(strata_stack_create("plain(text=outer), bare, direct", 0, &stack));
    strata_resource *resource = strata_stack_top(stack);
    assert_ptr_equal(resource, &layers[0].resource);
    assert_ptr_equal(resource->upstream, &layers[1].resource);
    assert_string_equal(resource->upstream->upstream->ops->name, "direct");
    assert_null(resource->upstream->upstream->upstream);
    assert_int_equal(strata_stack_device(stack), 0);
    check_ok(strata_stack_destroy(stack));
}

static void options_that_are_not_given_are_zero(void **state)
{
    (void)state;
    test_options zero;
    memset(&zero, 0, sizeof zero);
    memset(&seen, 0xff, sizeof seen);
    read_text("plain, direct");
    assert_memory_equal(&seen, &zero, sizeof zero);
}

static void read_option(const char *option)
{
    char text[512];
    setup(NULL);
    snprintf(text, sizeof text, "plain(%s), direct", option);
    read_text(text);
}

static void switches_are_words_in_any_case(void **state)
{
    (void)state;
    static const char *const on[] = {"on", "true", "yes", "1", "ON", "True", "\"yes\""};
    static const char *const off[] = {"off", "false", "no", "0", "OFF", "False"};
    char option[64];
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++) {
        snprintf(option, sizeof option, "flag=%s", on[i]);
        read_option(option);
        assert_true(seen.flag);
    }
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++) {
        snprintf(option, sizeof option, "FLAG=%s", off[i]);
        read_option(option);
        assert_false(seen.flag);
    }
}

static void choices_are_their_positions(void **state)
{
    (void)state;
    static const char *const texts[] = {"colour=red", "colour=GREEN", "Colour=dark-blue"};
    for (int i = 0; i < 3; i++) {
        read_option(texts[i]);
        assert_int_equal(seen.colour, i);
    }
}

static void numbers_reach_the_largest_there_is(void **state)
{
    (void)state;
    read_option("count=18446744073709551615");
    assert_true(seen.count == UINT64_MAX);
    read_option("count=0007");
    assert_true(seen.count == 7);
}

typedef struct number {
    const char *text;
    uint64_t value;
} number;

static const number sizes[] = {
    {"0", 0},
    {"4096", 4096},
    {"1B", 1},
    {"3K", 3 << 10},
    {"3k", 3 << 10},
    {"3KiB", 3 << 10},
    {"3kib", 3 << 10},
    {"3KB", 3000},
    {"5M", 5 << 20},
    {"5MiB", 5 << 20},
    {"5MB", 5000000},
    {"7G", UINT64_C(7) << 30},
    {"7GiB", UINT64_C(7) << 30},
    {"7GB", UINT64_C(7000000000)},
    {"2T", UINT64_C(2) << 40},
    {"2TiB", UINT64_C(2) << 40},
    {"2TB", UINT64_C(2000000000000)},
    {"1.5GiB", UINT64_C(3) << 29},
    {"0.5K", 512},
    {"2.25MB", 2250000},
    {"18446744073709551615", UINT64_MAX},
    {"16777215TiB", UINT64_C(16777215) << 40},
};

static void sizes_have_units(void **state)
{
    (void)state;
    char option[64];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t bytes = 1;
        snprintf(option, sizeof option, "size=%s", sizes[i].text);
        read_option(option);
        assert_true(seen.size == sizes[i].value);
        check_ok(strata_parse_size(sizes[i].text, &bytes));
        assert_true(bytes == sizes[i].value);
    }
    read_option("size=\"512 MB\"");
    assert_true(seen.size == 512000000);
}

static void durations_have_units(void **state)
{
    (void)state;
    static const number durations[] = {{"17", 17},         {"17ns", 17},         {"5us", 5000},   {"20ms", 20000000},
                                       {"2s", 2000000000}, {"1.5s", 1500000000}, {"0.25us", 250}, {"3MS", 3000000}};
    char option[64];
    for (size_t i = 0; i < sizeof durations / sizeof durations[0]; i++) {
        snprintf(option, sizeof option, "wait=%s", durations[i].text);
        read_option(option);
        assert_true(seen.duration == durations[i].value);
    }
}

static void strings_are_words_or_anything_in_quotes(void **state)
{
    (void)state;
    static const struct {
        const char *option, *value;
    } cases[] = {
        {"text=run-7_b.csv", "run-7_b.csv"},
        {"text=/tmp/a+b:c/100%", "/tmp/a+b:c/100%"},
        {"text=\"with spaces, commas (and) = signs\"", "with spaces, commas (and) = signs"},
        {"text=\"\"", ""},
        {"text = \"Case Stays\" ", "Case Stays"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        read_option(cases[i].option);
        assert_string_equal(seen.text, cases[i].value);
    }
    char longest[300] = "text=";
    memset(longest + 5, 'z', 255);
    read_option(longest);
    assert_int_equal(strlen(seen.text), 255);
}

/* ---- bad texts ---- */

typedef struct bad_text {
    const char *text;
    size_t position; /* as people count, from 1 */
    const char *words;
} bad_text;

static const bad_text bad_texts[] = {
    {"", 1, "expected async, direct, "},
    {"", 1, ", plain, bare"},
    {"   ", 4, "expected async"},
    {",direct", 1, "expected async"},
    {"direct,", 8, "expected async"},
    {"direct direct", 8, "expected ','"},
    {"direct;", 7, "expected ','"},
    {"nonsense", 1, "unknown layer \"nonsense\"; expected async, direct"},
    {"plain, nonsense, direct", 8, "unknown layer \"nonsense\""},
    {"plan, direct", 1, "unknown layer \"plan\""},
    {"plain", 1, "plain owns no memory"},
    {"plain, bare", 8, "bare owns no memory"},
    {"direct, plain", 1, "direct owns memory and must be the last layer"},
    {"plain, async, direct", 8, "async owns memory"},
    {"direct(", 8, "direct has no options; expected ')'"},
    {"direct(count=1)", 8, "direct has no options; expected ')'"},
    {"direct)", 7, "expected ','"},
    {"plain(, direct", 7, "expected flag, count, size, wait, colour, text or ')'"},
    {"async(", 7, " or ')'"},
    {"plain(,), direct", 7, "expected flag"},
    {"plain(count), direct", 12, "expected '=' and a value for count"},
    {"plain(count=), direct", 13, "expected a value"},
    {"plain(count==3), direct", 13, "expected a value"},
    {"plain(count=3", 14, "expected ',' or ')'"},
    {"plain(count=3 flag=on), direct", 15, "expected ',' or ')'"},
    {"plain(count=3,), direct", 15, "expected flag"},
    {"plain(cont=3), direct", 7, "plain: unknown option \"cont\"; expected flag, count"},
    {"plain(count=3, count=3), direct", 16, "duplicate option count"},
    {"plain(count=3, COUNT=4), direct", 16, "duplicate option count"},
    {"plain(count=three), direct", 13, "expected a whole number"},
    {"plain(count=-3), direct", 13, "expected a whole number"},
    {"plain(count=+3), direct", 13, "expected a whole number"},
    {"plain(count=3.5), direct", 13, "expected a whole number"},
    {"plain(count=\"\"), direct", 14, "expected a whole number"},
    {"plain(count=18446744073709551616), direct", 13, "expected a whole number"},
    {"plain(flag=maybe), direct", 12, "expected on or off"},
    {"plain(flag=2), direct", 12, "expected on or off"},
    {"plain(flag=\"\"), direct", 13, "expected on or off"},
    {"plain(colour=blue), direct", 14, "expected one of red|green|dark-blue"},
    {"plain(colour=gree), direct", 14, "expected one of"},
    {"plain(colour=\"red|green\"), direct", 15, "expected one of"},
    {"plain(colour=\"\"), direct", 15, "expected one of"},
    {"plain(size=8XB), direct", 12, "expected a size such as"},
    {"plain(size=GiB), direct", 12, "expected a size"},
    {"plain(size=.5GiB), direct", 12, "expected a size"},
    {"plain(size=1.GiB), direct", 12, "expected a size"},
    {"plain(size=-1), direct", 12, "expected a size"},
    {"plain(size=0x10), direct", 12, "expected a size"},
    {"plain(size=16777216TiB), direct", 12, "expected a size"},
    {"plain(size=99999999999999999999), direct", 12, "expected a size"},
    {"plain(wait=3h), direct", 12, "expected a duration such as"},
    {"plain(wait=3KiB), direct", 12, "expected a duration"},
    {"plain(wait=0), direct", 12, "of more than 0; leave the option out for its default"},
    {"plain(wait=0ms), direct", 12, "of more than 0"},
    {"budget(shared=\"\"), direct", 16, "expected a name"}, /* from a shell's empty variable: never unshared */
    {"budget(name=\"\"), direct", 14, "expected a name"},
    {"budget(wait=live, timeout=0), direct", 27, "of more than 0"},
    {"budget(timeout=0s), direct", 16, "of more than 0"},
    {"plain(wait=20000000000s), direct", 12, "expected a duration"},
    {"plain(text=\"no end), direct", 12, "unterminated text"},
    {"plain(text=two words), direct", 16, "expected ',' or ')'"},
    {"plain(size=8 GiB), direct", 14, "a value with a blank stands in double quotes"},
    {"budget(limit=50 %), direct", 17, "a value with a blank stands in double quotes"},
    {"plain(size=\"8 GiB\" flag=on), direct", 20, "expected ',' or ')'"},
    {"plain[count=3], direct", 6, "expected ','"},
    {"async(max_size=lots)", 16, "expected a size"},
    {"logging(mode=0), null", 14, "expected permissions of a file in octal digits, such as 0640"},
    {"logging(mode=rw), null", 14, "expected permissions"},
    {"logging(mode=0680), null", 14, "expected permissions"},
    {"logging(mode=4755), null", 14, "expected permissions"},
    {"logging(mode=00640), null", 14, "expected permissions"},
    {"statistics(mode=-1), null", 17, "expected permissions"},
    {"async(pool=given)", 12, "expected one of own|default|current"},
    {"fallback", 9, "expected '(' and the branches of fallback, as in \"fallback("},
    {"fallback, direct", 9, "expected '('"},
    {"fallback()", 10, "expected async, direct"},
    {"fallback(direct)", 16, "expected '|' and another branch of fallback"},
    {"fallback(direct |)", 18, "expected async, direct"},
    {"fallback(| direct)", 10, "expected async, direct"},
    {"fallback(direct | async", 24, "expected ',' and another layer, or '|' or ')'"},
    {"fallback(direct | async(max_size=1)", 36, "or '|' or ')'"},
    {"fallback(direct async)", 17, "expected ',' and another layer, or '|' or ')'"},
    {"fallback(plain | direct)", 10, "plain owns no memory"},
    {"fallback(direct | plain)", 19, "plain owns no memory"},
    {"fallback(direct, plain | direct)", 10, "direct owns memory and must be the last layer"},
    {"fallback(direct | async), direct", 1, "fallback owns memory and must be the last layer"},
    {"plain, fallback(direct | bare(count=1), async)", 31, "bare has no options"},
    {"fallback(direct | nonsense)", 19, "unknown layer \"nonsense\""},
    {"fallback(direct | fallback(async))", 33, "expected '|'"},
    {"fallback(count=1)", 10, "unknown layer \"count\""},
    {"fallback(direct | direct) | direct", 27, "expected ',' and another layer, or the end"},
    {"fallback(direct|direct|direct|direct|direct|direct|direct|direct|direct)", 66, "expected at most 8 branches"},
    {"direct | direct", 8, "expected ','"},
};

static void a_bad_text_is_refused_with_the_position_and_what_was_expected(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_texts / sizeof bad_texts[0]; i++) {
        const bad_text *bad = &bad_texts[i];
        char position[48];
        strata_stack *stack = (strata_stack *)&layers;
        setup(NULL);
        strata_status status = strata_stack_create(bad->text, 0, &stack);
        if (status != STRATA_ERROR_SYNTAX)
            print_error("text: %s\n", bad->text);
        check_status(status, STRATA_ERROR_SYNTAX);
        assert_null(stack);
        assert_int_equal(made, 0);
        snprintf(position, sizeof position, "stack text, character %zu (", bad->position);
        check_last_error(STRATA_ERROR_SYNTAX, position);
        check_last_error(STRATA_ERROR_SYNTAX, bad->words);
    }
}

static void a_text_that_is_too_long_for_an_option_is_refused(void **state)
{
    (void)state;
    char text[400] = "plain(text=";
    memset(text + 11, 'z', 256);
    strcat(text, "), direct");
    strata_stack *stack;
    check_status(strata_stack_create(text, 0, &stack), STRATA_ERROR_SYNTAX);
    check_last_error(STRATA_ERROR_SYNTAX, "expected at most 255 bytes");
}

static void a_stack_of_too_many_layers_is_refused(void **state)
{
    (void)state;
    char text[400] = "";
    strata_stack *stack;
    for (int i = 0; i < 31; i++)
        strcat(text, "bare, ");
    strcat(text, "direct");
    read_text(text);
    char longer[420] = "bare, ";
    strcat(longer, text);
    setup(NULL);
    check_status(strata_stack_create(longer, 0, &stack), STRATA_ERROR_SYNTAX);
    check_last_error(STRATA_ERROR_SYNTAX, "at most 32 layers");
    assert_int_equal(made, 0);
}

static void a_size_by_itself_is_read_or_refused(void **state)
{
    (void)state;
    uint64_t bytes = 1;
    check_ok(strata_parse_size("512 MB", &bytes));
    assert_true(bytes == 512000000);
    check_ok(strata_parse_size("0.0GiB", &bytes));
    assert_true(bytes == 0);
    check_ok(strata_parse_size("8.0", &bytes));
    assert_true(bytes == 8);
    check_ok(strata_parse_size("0.001K", &bytes));
    assert_true(bytes == 1);
    static const char *const bad[] = {"",    " ",   "MB",  "1 1",     "5 parsec",   " 5",  "5MB ",
                                      "1e9", "nan", "0.5", "0.0009K", "0.0000001K", "1.5", "8.25B"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bytes = 1;
        check_status(strata_parse_size(bad[i], &bytes), STRATA_ERROR_SYNTAX);
        assert_true(bytes == 0);
        check_last_error(STRATA_ERROR_SYNTAX, "expected a number with an optional unit");
    }
    check_status(strata_parse_size(NULL, &bytes), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_parse_size("1", NULL), STRATA_ERROR_INVALID_VALUE);
}

/* Whatever digit it begins at; of a larger unit it leaves whole bytes. */
static void a_fraction_of_a_byte_is_refused_by_its_text(void **state)
{
    (void)state;
    static const char *const fractions[] = {"1.0000001", "1.00000000000000000001B", "0.0000001", "7.5", "1.9999999"};
    static const char *const texts[] = {"plain(size", "async(max_size", "budget(limit"};
    char text[80], quoted[40];
    strata_stack *stack;
    uint64_t bytes;
    for (size_t i = 0; i < sizeof fractions / sizeof fractions[0]; i++) {
        bytes = 1;
        snprintf(quoted, sizeof quoted, "(\"%s", fractions[i]);
        check_status(strata_parse_size(fractions[i], &bytes), STRATA_ERROR_SYNTAX);
        assert_true(bytes == 0);
        check_last_error(STRATA_ERROR_SYNTAX, quoted + 1);
        check_last_error(STRATA_ERROR_SYNTAX, "a fraction needs a unit");
        for (size_t j = 0; j < sizeof texts / sizeof texts[0]; j++) {
            snprintf(text, sizeof text, "%s=%s), direct", texts[j], fractions[i]);
            check_status(strata_stack_create(text, 0, &stack), STRATA_ERROR_SYNTAX);
            check_last_error(STRATA_ERROR_SYNTAX, quoted);
            check_last_error(STRATA_ERROR_SYNTAX, "in whole bytes");
        }
    }
    check_ok(strata_parse_size("1.5KiB", &bytes));
    assert_true(bytes == 1536);
    check_ok(strata_parse_size("1.0000001K", &bytes));
    assert_true(bytes == 1024);
    check_ok(strata_parse_size("8.000000000", &bytes));
    assert_true(bytes == 8);
}

/* Zero is "no limit" there. */
static void a_size_below_one_byte_is_no_size_in_a_stack_text_either(void **state)
{
    (void)state;
    strata_stack *stack;
    check_status(strata_stack_create("async(max_size=0.5)", 0, &stack), STRATA_ERROR_SYNTAX);
    check_last_error(STRATA_ERROR_SYNTAX, "character 16 (\"0.5)\")");
    check_ok(strata_stack_create("async(max_size=0)", 0, &stack));
    check_ok(strata_stack_destroy(stack));
}

/* Not bytes: these letters have two each. Of what follows 24 characters are shown, none in part. */
static void a_bad_text_is_refused_with_its_place_in_characters(void **state)
{
    (void)state;
    strata_stack *stack;
    check_status(strata_stack_create("logging(file=\"gr\u00f6\u00dfe\", bad=1), async", 0, &stack),
                 STRATA_ERROR_SYNTAX);
    check_last_error(STRATA_ERROR_SYNTAX, "stack text, character 23 (\"bad=1), async\")");
    check_status(strata_stack_create("\u00f6async", 0, &stack), STRATA_ERROR_SYNTAX);
    check_last_error(STRATA_ERROR_SYNTAX, "stack text, character 1 (\"\u00f6async\")");
    check_status(strata_stack_create(
                     "async(x\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6"
                     "\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6=1)",
                     0, &stack),
                 STRATA_ERROR_SYNTAX);
    check_last_error(STRATA_ERROR_SYNTAX,
                     "character 7 (\"x\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6"
                     "\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\u00f6\"): ");
}

/* What a terminal would obey is shown instead. */
static void a_bad_text_with_control_characters_is_shown_and_not_obeyed(void **state)
{
    (void)state;
    strata_stack *stack;
    check_status(strata_stack_create("async(\033[31m\n\tx=1)", 0, &stack), STRATA_ERROR_SYNTAX);
    check_last_error(STRATA_ERROR_SYNTAX, "\\x1b[31m\\n\\tx=1)");
    for (const char *at = strata_last_error()->message; *at; at++)
        assert_true(*at >= 0x20 && *at < 0x7f);
}

static void without_a_text_or_a_place_nothing_is_built(void **state)
{
    (void)state;
    strata_stack *stack = (strata_stack *)&layers;
    check_status(strata_stack_create(NULL, 0, &stack), STRATA_ERROR_INVALID_VALUE);
    assert_null(stack);
    check_status(strata_stack_create("direct", 0, NULL), STRATA_ERROR_INVALID_VALUE);
}

/* ---- failures after the text was read ---- */

static void a_layer_that_refuses_to_be_made_takes_those_above_with_it(void **state)
{
    (void)state;
    strata_stack *stack;
    refusal = STRATA_ERROR_IO;
    check_status(strata_stack_create("plain, bare, plain, unwilling, bare, direct", 0, &stack), STRATA_ERROR_IO);
    assert_null(stack);
    check_last_error(STRATA_ERROR_IO, "never wants to be made");
    assert_int_equal(made, 3);
    assert_int_equal(ended, 3);
    check_status(strata_stack_create("plain, fallback(bare, direct | plain, unwilling, direct)", 0, &stack),
                 STRATA_ERROR_IO);
    assert_int_equal(made, 6);
    assert_int_equal(ended, 6);
}

static void an_owner_that_cannot_be_made_leaves_nothing_half_built(void **state)
{
    (void)state;
    strata_stack *stack;
    check_status(strata_stack_create("plain, async(initial_size=2GiB, max_size=1GiB)", 0, &stack),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_stack_create("plain, async(initial_size=1000TiB)", 0, &stack), STRATA_ERROR_OUT_OF_MEMORY);
    check_status(strata_stack_create("plain, async(pool=default, max_size=1GiB)", 0, &stack),
                 STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(made, 3);
    assert_int_equal(ended, 3);
    if (test_sim_control()) {
        strata_sim_accounts accounts;
        check_cu(test_sim_control()->get_accounts(&accounts));
        assert_int_equal(accounts.pools, 0);
        assert_int_equal(accounts.streams, 0);
        assert_int_equal(accounts.device_blocks, 0);
    }
}

static void a_stack_for_a_device_that_there_is_not_is_refused(void **state)
{
    (void)state;
    strata_stack *stack;
    static const int ordinals[] = {-1, 63, 64, 1000000};
    for (size_t i = 0; i < sizeof ordinals / sizeof ordinals[0]; i++) {
        setup(NULL);
        check_status(strata_stack_create("plain, direct", ordinals[i], &stack), STRATA_ERROR_INVALID_VALUE);
        assert_int_equal(made, ended);
    }
}

/* ---- registering ---- */

/* Runs first: before any stack is built. */
static void the_names_of_the_librarys_own_layers_are_taken_from_the_start(void **state)
{
    (void)state;
    static strata_layer usurper;
    static const char *const names[] = {"direct", "async"};
    for (size_t i = 0; i < 2; i++) {
        usurper = bare;
        usurper.name = names[i];
        check_status(strata_layer_register(&usurper), STRATA_ERROR_INVALID_VALUE);
    }
    check_ok(strata_layer_register(&plain));
    check_ok(strata_layer_register(&bare));
    check_ok(strata_layer_register(&unwilling));
    read_text("direct");
}

static void a_layer_is_registered_once_and_whole(void **state)
{
    (void)state;
    check_status(strata_layer_register(&plain), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "\"plain\" is already registered");
    static strata_layer taken, nameless, spaced, makerless, sizeless, optionless;
    taken = spaced = nameless = makerless = sizeless = optionless = plain;
    taken.name = "async";
    nameless.name = "";
    spaced.name = "two words";
    makerless.name = sizeless.name = optionless.name = "new";
    makerless.create = NULL;
    sizeless.size = 0;
    optionless.options = NULL;
    static const strata_layer *const bad[] = {NULL, &taken, &nameless, &spaced, &makerless, &sizeless, &optionless};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_status(strata_layer_register(bad[i]), STRATA_ERROR_INVALID_VALUE);
    strata_stack *stack;
    check_status(strata_stack_create("new, direct", 0, &stack), STRATA_ERROR_SYNTAX);
}

static void a_layer_with_more_options_than_a_text_can_tell_apart_is_refused(void **state)
{
    (void)state;
    static strata_option many[65];
    static char names[65][8];
    for (size_t i = 0; i < 65; i++) {
        snprintf(names[i], sizeof names[i], "o%zu", i);
        many[i] = (strata_option){.name = names[i], .type = STRATA_OPTION_BOOL};
    }
    static strata_layer wide;
    wide = (strata_layer){.size = sizeof wide,
                          .name = "wide",
                          .options = many,
                          .option_count = 65,
                          .options_size = sizeof(test_options),
                          .create = make_layer};
    check_status(strata_layer_register(&wide), STRATA_ERROR_INVALID_VALUE);
    wide.option_count = 64;
    check_ok(strata_layer_register(&wide));
    read_text("wide(o0=on, o63=on), direct");
}

static void check_called(const char *text, const char *called)
{
    strata_stack *stack;
    check_ok(strata_stack_create(text, 0, &stack));
    assert_string_equal(strata_stack_text(stack), called);
    check_ok(strata_stack_destroy(stack));
}

static void in_sanitizer_mode_every_block_is_an_allocation_of_its_own(void **state)
{
    (void)state;
    strata_stack *stack;
    check_called("budget(limit=8GiB), async(max_size=1GiB)", "budget(limit=8GiB), async(max_size=1GiB)");
    setenv("STRATA_MODE", "sanitizer", 1);
    check_called("budget(limit=8GiB), async(max_size=1GiB)", "budget(limit=8GiB), direct");
    check_called("async", "direct");
    check_called("statistics, null", "statistics, null");
    check_called("statistics, pool(chunk=4MiB)", "statistics, direct");
    check_called("pool, null", "null"); /* what takes memory from below for many blocks is left out */
    check_called("budget , pool(overhead=10), statistics, pool, async(max_size=1GiB)", "budget , statistics, direct");
    setenv("STRATA_MODE", "fast", 1);
    check_status(strata_stack_create("async", 0, &stack), STRATA_ERROR_SYNTAX);
    check_last_error(STRATA_ERROR_SYNTAX, "STRATA_MODE is \"fast\"");
    assert_null(stack);
    check_status(strata_set_mode((strata_mode)7), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_set_mode(STRATA_MODE_SANITIZER)); /* comes before what the environment says */
    check_called("async", "direct");
    check_called("budget, fallback(pool(max_size=1GiB) |statistics, pool, async| fallback(plain, null|pool))",
                 "budget, fallback(direct | statistics, direct | fallback(plain, null | direct))");
    check_ok(strata_set_mode(STRATA_MODE_NORMAL));
    check_called("async", "async");
    unsetenv("STRATA_MODE");
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_names_of_the_librarys_own_layers_are_taken_from_the_start),
        cmocka_unit_test_setup(spaces_stand_wherever_words_end, setup),
        cmocka_unit_test_setup(layers_stand_in_the_order_of_the_text, setup),
        cmocka_unit_test_setup(options_that_are_not_given_are_zero, setup),
        cmocka_unit_test_setup(switches_are_words_in_any_case, setup),
        cmocka_unit_test_setup(choices_are_their_positions, setup),
        cmocka_unit_test_setup(numbers_reach_the_largest_there_is, setup),
        cmocka_unit_test_setup(sizes_have_units, setup),
        cmocka_unit_test_setup(durations_have_units, setup),
        cmocka_unit_test_setup(strings_are_words_or_anything_in_quotes, setup),
        cmocka_unit_test_setup(a_bad_text_is_refused_with_the_position_and_what_was_expected, setup),
        cmocka_unit_test_setup(a_text_that_is_too_long_for_an_option_is_refused, setup),
        cmocka_unit_test_setup(a_stack_of_too_many_layers_is_refused, setup),
        cmocka_unit_test_setup(a_size_by_itself_is_read_or_refused, setup),
        cmocka_unit_test_setup(a_fraction_of_a_byte_is_refused_by_its_text, setup),
        cmocka_unit_test_setup(a_size_below_one_byte_is_no_size_in_a_stack_text_either, setup),
        cmocka_unit_test_setup(a_bad_text_is_refused_with_its_place_in_characters, setup),
        cmocka_unit_test_setup(a_bad_text_with_control_characters_is_shown_and_not_obeyed, setup),
        cmocka_unit_test_setup(without_a_text_or_a_place_nothing_is_built, setup),
        cmocka_unit_test_setup(a_layer_that_refuses_to_be_made_takes_those_above_with_it, setup),
        cmocka_unit_test_setup(an_owner_that_cannot_be_made_leaves_nothing_half_built, setup),
        cmocka_unit_test_setup(a_stack_for_a_device_that_there_is_not_is_refused, setup),
        cmocka_unit_test(in_sanitizer_mode_every_block_is_an_allocation_of_its_own),
        cmocka_unit_test_setup(a_layer_is_registered_once_and_whole, setup),
        cmocka_unit_test_setup(a_layer_with_more_options_than_a_text_can_tell_apart_is_refused, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
