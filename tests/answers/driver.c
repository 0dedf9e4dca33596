/* Opens the driver that is asked: every entry point comes from cuGetProcAddress, in the version that the questions are
 * written for. */
#include "ask.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct driver cu;

struct entry {
    const char *name;
    int version;
    size_t offset;
};

static const struct entry entries[] = {
#define ENTRY(name, version) {"cu" #name, version, offsetof(struct driver, name)},
    ENTRY_POINTS(ENTRY)
#undef ENTRY
};

bool driver_open(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "strata_answers: %s\n", dlerror());
        return false;
    }
    void *address = dlsym(library, "cuGetProcAddress_v2");
    if (address == NULL) {
        fprintf(stderr, "strata_answers: %s has no cuGetProcAddress_v2\n", path);
        return false;
    }
    memcpy(&cu.GetProcAddress, &address, sizeof address);
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        address = NULL;
        CUresult result =
            cu.GetProcAddress(entries[i].name, &address, entries[i].version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
        if (result != CUDA_SUCCESS || found != CU_GET_PROC_ADDRESS_SUCCESS)
            address = NULL;
        memcpy((char *)&cu + entries[i].offset, &address, sizeof address);
    }
    return true;
}

void driver_ask_entry_points(void)
{
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *address = NULL;
        memcpy(&address, (const char *)&cu + entries[i].offset, sizeof address);
        ask_text(address != NULL ? "present" : "absent", "entry_points.%s.%d", entries[i].name, entries[i].version);
    }
}
