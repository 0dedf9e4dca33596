/* Replacing % and a letter. */
#include "core/base/file_name.h"

#include "core/base/characters.h"
#include "core/base/error.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* False for an unknown letter. */
static bool put_part(char letter, const strata_file_part *parts, size_t count, char part[16])
{
    int number = (int)getpid();
    bool known = letter == 'p';
    for (size_t i = 0; i < count && !known; i++) {
        known = letter == parts[i].letter;
        number = parts[i].number;
    }
    if (letter == '%')
        strcpy(part, "%");
    else if (known)
        snprintf(part, 16, "%d", number);
    return known || letter == '%';
}

static strata_status refuse(const char *layer, const char *given, size_t at, const strata_file_part *parts,
                            size_t count)
{
    char others[128] = "";
    size_t used = 0;
    for (size_t i = 0; i < count && used < sizeof others; i++) {
        int length = snprintf(others + used, sizeof others - used, ", %%%c (%s)", parts[i].letter, parts[i].what);
        used += length > 0 ? (size_t)length : 0;
    }
    return strata_fail(STRATA_ERROR_INVALID_VALUE,
                       "%s: file name \"%s\": unknown %% sequence at character %zu; expected %%p (process)%s or %%%%",
                       layer, given, strata_character_at(given, at), others);
}

strata_status strata_file_name(char *to, size_t room, const char *layer, const char *given,
                               const strata_file_part *parts, size_t count)
{
    size_t length = 0;
    for (const char *c = given; *c; c++) {
        char part[16] = {*c};
        if (*c == '%' && !put_part(*++c, parts, count, part))
            return refuse(layer, given, (size_t)(c - 1 - given), parts, count);
        length += (size_t)snprintf(to + length, room - length, "%s", part);
        if (length >= room)
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: file name longer than %zu bytes", layer, room - 1);
    }
    to[length] = '\0';
    return STRATA_SUCCESS;
}
