/* Counting characters. */
#include "core/base/characters.h"

#include <stdbool.h>

static bool begins_character(char byte)
{
    return ((unsigned char)byte & 0xc0) != 0x80;
}

size_t strata_character_at(const char *text, size_t at)
{
    size_t count = 1;
    for (size_t i = 1; i <= at; i++)
        count += begins_character(text[i]);
    return count;
}

size_t strata_characters_bytes(const char *text, size_t most)
{
    size_t bytes = 0;
    for (size_t count = 0; text[bytes]; bytes++) {
        count += bytes == 0 || begins_character(text[bytes]);
        if (count > most)
            break;
    }
    return bytes;
}
