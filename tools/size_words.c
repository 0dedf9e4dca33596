/* Numbers for people. */
#include "tools/size_words.h"

#include "core/base/size_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Three significant digits, or more before the point. */
static words scaled(double value, const char *unit)
{
    words out;
    int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
    snprintf(out.text, sizeof out.text, "%.*f %s", decimals, value, unit);
    return out;
}

words words_of_bytes(uint64_t bytes)
{
    words out;
    snprintf(out.text, sizeof out.text, "%.31s", strata_size_short(bytes).text);
    return out;
}

words words_of_duration(uint64_t nanoseconds)
{
    words out;
    if (nanoseconds >= 1000000000)
        return scaled((double)nanoseconds / 1e9, "s");
    if (nanoseconds >= 1000000)
        return scaled((double)nanoseconds / 1e6, "ms");
    if (nanoseconds >= 10000)
        return scaled((double)nanoseconds / 1e3, "us");
    snprintf(out.text, sizeof out.text, "%" PRIu64 " ns", nanoseconds);
    return out;
}

words words_of_count(uint64_t count)
{
    words out;
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, count);
    char *to = out.text;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return out;
}
