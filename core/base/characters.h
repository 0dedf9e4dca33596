/* Characters of a text in UTF-8, for messages. A byte that begins no character counts with the one before. */
#ifndef STRATA_CORE_BASE_CHARACTERS_H
#define STRATA_CORE_BASE_CHARACTERS_H

#include <stddef.h>

/* Which character text[at] is, from 1. */
size_t strata_character_at(const char *text, size_t at);

/* Bytes of the first `most` characters, or of all if there are fewer. */
size_t strata_characters_bytes(const char *text, size_t most);

#endif
