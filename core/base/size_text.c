/* Integers are read exactly; a fraction takes a second, exact integer step. */
#include "core/base/size_text.h"

#include "core/base/error.h"

#include <strata/stack.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct unit {
    const char *name;
    uint64_t factor;
} unit;

static const unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"K", UINT64_C(1) << 10},
    {"M", UINT64_C(1) << 20},
    {"G", UINT64_C(1) << 30},
    {"T", UINT64_C(1) << 40},
    {"KiB", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", UINT64_C(1000000000000)},
};

static const unit duration_units[] = {
    {"", 1}, {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000},
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* 10 * value + digit; false if it does not fit. */
static bool push_digit(uint64_t *value, char digit)
{
    return !__builtin_mul_overflow(*value, 10, value) &&
           !__builtin_add_overflow(*value, (uint64_t)(digit - '0'), value);
}

static const unit *find_unit(const unit *units, size_t count, const char *text, size_t length)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(units[i].name) == length && strncasecmp(units[i].name, text, length) == 0)
            return &units[i];
    return NULL;
}

static bool read_with_units(const char *text, size_t length, const unit *units, size_t count, uint64_t *out)
{
    size_t at = 0;
    uint64_t whole = 0, fraction = 0, scale = 1;
    bool zero = true, fractional = false;
    while (at < length && is_digit(text[at])) {
        zero = zero && text[at] == '0';
        if (!push_digit(&whole, text[at++]))
            return false;
    }
    if (at == 0)
        return false;
    if (at + 1 < length && text[at] == '.' && is_digit(text[at + 1])) {
        for (at++; at < length && is_digit(text[at]); at++) {
            fractional |= text[at] != '0';
            if (scale == 1000000) /* further digits are below a millionth of a unit */
                continue;
            fraction = 10 * fraction + (uint64_t)(text[at] - '0');
            scale *= 10;
        }
    }
    while (at < length && text[at] == ' ')
        at++;
    zero = zero && !fractional;
    const unit *found = find_unit(units, count, text + at, length - at);
    uint64_t value;
    if (found && found->factor == 1 && fractional) /* 1.5 is meant as 1.5 GiB */
        return false;
    if (!found || __builtin_mul_overflow(whole, found->factor, &value))
        return false;
    uint64_t part = found->factor / scale * fraction + found->factor % scale * fraction / scale;
    if (__builtin_add_overflow(value, part, out))
        return false;
    return *out || zero; /* zero often means "no limit"; half a byte must not */
}

bool strata_read_size(const char *text, size_t length, uint64_t *bytes)
{
    return read_with_units(text, length, size_units, sizeof size_units / sizeof size_units[0], bytes);
}

bool strata_read_duration(const char *text, size_t length, uint64_t *nanoseconds)
{
    return read_with_units(text, length, duration_units, sizeof duration_units / sizeof duration_units[0], nanoseconds);
}

bool strata_read_percent(const char *text, size_t length, double *percent)
{
    static const unit units[] = {{"%", 1000000}};
    uint64_t millionths;
    if (!read_with_units(text, length, units, 1, &millionths) || millionths == 0 || millionths > 100000000)
        return false;
    *percent = (double)millionths / 1e6;
    return true;
}

bool strata_read_count(const char *text, size_t length, uint64_t *count)
{
    size_t at = 0;
    *count = 0;
    while (at < length && is_digit(text[at]) && push_digit(count, text[at]))
        at++;
    return length && at == length;
}

bool strata_read_switch(const char *text, size_t length, bool *on)
{
    static const char *const words[] = {"off", "false", "no", "0", "on", "true", "yes", "1"};
    for (size_t i = 0; i < 8; i++) {
        if (strlen(words[i]) != length || strncasecmp(words[i], text, length) != 0)
            continue;
        *on = i >= 4;
        return true;
    }
    return false;
}

strata_status strata_parse_size(const char *text, uint64_t *bytes)
{
    if (!text || !bytes)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_parse_size: text or bytes is NULL");
    *bytes = 0;
    if (strata_read_size(text, strlen(text), bytes))
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_SYNTAX,
                       "invalid size \"%.64s\": expected a number with an optional unit, such as 8GiB, 512MB or 4096, "
                       "below 2^64 bytes; a fraction needs a unit above a byte, as in 1.5KiB",
                       text);
}

void strata_put_decimals(char *text, size_t room, double value, unsigned decimals)
{
    uint64_t factor = 1;
    for (unsigned i = 0; i < decimals; i++)
        factor *= 10;
    const uint64_t all = (uint64_t)(value * (double)factor + 0.5);
    if (decimals)
        snprintf(text, room, "%" PRIu64 ".%0*" PRIu64, all / factor, (int)decimals, all % factor);
    else
        snprintf(text, room, "%" PRIu64, all);
}

/* Three significant digits, or more before the point. */
strata_size_words strata_size_short(uint64_t bytes)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    strata_size_words out;
    double value = (double)bytes;
    size_t scale = 0;
    for (; value >= (scale ? 1023.5 : 1024) && scale + 1 < sizeof names / sizeof names[0]; scale++)
        value /= 1024; /* what would be printed as 1024 has the next unit */
    char number[24];
    strata_put_decimals(number, sizeof number, value, scale == 0 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0);
    snprintf(out.text, sizeof out.text, "%s %s", number, names[scale]);
    return out;
}

strata_size_words strata_size_text(uint64_t bytes)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    strata_size_words out;
    uint64_t whole = bytes;
    size_t scale = 0;
    for (; whole >= 1024 && whole % 1024 == 0; whole /= 1024)
        scale++;
    if (bytes < 1024)
        snprintf(out.text, sizeof out.text, "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
    else if (whole < 1024)
        snprintf(out.text, sizeof out.text, "%" PRIu64 " %s (%" PRIu64 " bytes)", whole, names[scale], bytes);
    else
        snprintf(out.text, sizeof out.text, "%.16s (%" PRIu64 " bytes)", strata_size_short(bytes).text, bytes);
    return out;
}

uint64_t strata_amount_bytes(const strata_amount *amount, uint64_t total_bytes)
{
    if (amount->percent == 0)
        return amount->bytes;
    uint64_t bytes = (uint64_t)((double)total_bytes * (amount->percent / 100));
    return bytes ? bytes : 1; /* zero would be no amount */
}
