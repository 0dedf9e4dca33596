/* Stack texts: column labels, and texts with a limit. */
#include "peers.h"

#include <stdio.h>
#include <string.h>

static const char *past_space(const char *text)
{
    return text + strspn(text, " \t\n");
}

static bool is_pool(const char *layer)
{
    return strncmp(layer, "pool", 4) == 0 && strchr("(, \t\n", layer[4]);
}

/* Where the owner begins in a text: after the last comma outside parentheses and quotes, or at a pool, which may stand
 * over another layer. */
static const char *owner_in(const char *text, size_t *layers_above)
{
    const char *owner = past_space(text);
    bool quoted = false;
    int depth = 0;
    *layers_above = 0;
    for (const char *at = text; *at && !is_pool(owner); at++) {
        if (*at == '"')
            quoted = !quoted;
        else if (!quoted && (*at == '(' || *at == ')'))
            depth += *at == '(' ? 1 : -1;
        else if (!quoted && depth == 0 && *at == ',') {
            owner = past_space(at + 1);
            ++*layers_above;
        }
    }
    return owner;
}

void peer_label_stack(char label[PEER_LABEL_SIZE], const char *text)
{
    size_t above;
    const char *owner = owner_in(text, &above);
    int length = (int)strcspn(owner, "(, \t\n");
    if (above)
        snprintf(label, PEER_LABEL_SIZE, "%.*s+%zu", length < 7 ? length : 7, owner, above % 100);
    else
        snprintf(label, PEER_LABEL_SIZE, "%.*s", length < 8 ? length : 8, owner);
}

bool peer_limit_stack(char *into, size_t size, const char *text, uint64_t most)
{
    size_t above, length = strlen(text);
    if (strpbrk(owner_in(text, &above), "(,"))
        return false;
    while (length && strchr(" \t\n", text[length - 1]))
        length--;
    int written = snprintf(into, size, "%.*s(max_size=%llu)", (int)length, text, (unsigned long long)most);
    return written > 0 && (size_t)written < size;
}
