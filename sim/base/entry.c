/* Names of entry points. */
#include "base/base.h"
#include <string.h>

static _Thread_local const char *entry;
static _Thread_local const char *alias;

const char *sim_entry(void)
{
    return entry;
}

void sim_called_as(const char *name)
{
    alias = name;
}

void sim_entry_refused(void)
{
    alias = NULL;
}

void sim_entry_begin(const char *name)
{
    entry = alias ? alias : name;
    alias = NULL;
}

static bool is_suffix(const char *text, size_t length)
{
    if (length == 5 && (memcmp(text, "_ptds", 5) == 0 || memcmp(text, "_ptsz", 5) == 0))
        return true;
    if (length < 3 || memcmp(text, "_v", 2) != 0)
        return false;
    for (size_t i = 2; i < length; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return true;
}

size_t sim_entry_length(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = length; i-- > 0;)
        if (name[i] == '_' && is_suffix(name + i, length - i))
            length = i;
    return length;
}
