/* Statuses as texts, and the version. */
#include <strata/status.h>

const char *strata_version_string(void)
{
    return STRATA_VERSION_STRING;
}

const char *strata_status_name(strata_status status)
{
    switch (status) {
#define STATUS_NAME(name, code, text) \
    case STRATA_##name:               \
        return "STRATA_" #name;
        STRATA_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "STRATA_ERROR_UNKNOWN";
}

const char *strata_status_text(strata_status status)
{
    switch (status) {
#define STATUS_TEXT(name, code, text) \
    case STRATA_##name:               \
        return text;
        STRATA_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}
