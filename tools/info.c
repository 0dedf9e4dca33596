/* `strata info`: the driver, the devices, and the environment's stack. */
#include "core/base/host_memory.h"
#include "core/stack/stack_text.h"
#include "resources/builtin.h"
#include "runtime/environment.h"
#include "tools/command.h"
#include "tools/json_values.h"
#include "tools/plain_text.h"
#include "tools/size_words.h"

#include <strata/runtime.h>

#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

enum { OPTION_DRIVER = 256, OPTION_JSON };

typedef struct settings {
    const char *program;
    const char *driver;
    char environment_driver[4096]; /* STRATA_DRIVER at the start; "": not set */
    const char *environment_stack; /* STRATA_STACK; NULL: not set */
    strata_mode mode;              /* of STRATA_MODE */
    char stack_problem[512];       /* why the stack cannot be built; "": it can be read */
    bool json;
} settings;

static error_t parse(int key, char *text, struct argp_state *state)
{
    settings *to = state->input;
    switch (key) {
    case OPTION_DRIVER:
        to->driver = text;
        return 0;
    case OPTION_JSON:
        to->json = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected \"%s\"", text);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

typedef struct capability {
    const char *name;
    size_t offset; /* of a bool in strata_device_info */
} capability;

static const capability capabilities[] = {
    {"memory_pools", offsetof(strata_device_info, memory_pools)},
    {"virtual_memory", offsetof(strata_device_info, virtual_memory)},
    {"managed_memory", offsetof(strata_device_info, managed_memory)},
    {"fabric_handles", offsetof(strata_device_info, fabric_handles)},
    {"fd_handles", offsetof(strata_device_info, fd_handles)},
    {"stream_ids", offsetof(strata_device_info, stream_ids)},
    {"gpu_direct_rdma", offsetof(strata_device_info, gpu_direct_rdma)},
    {"mapped_fabric_handles", offsetof(strata_device_info, mapped_fabric_handles)},
    {"mapped_fd_handles", offsetof(strata_device_info, mapped_fd_handles)},
};

enum { CAPABILITIES = sizeof capabilities / sizeof capabilities[0] };

static bool has(const strata_device_info *device, size_t which)
{
    return *(const bool *)((const char *)device + capabilities[which].offset);
}

static const char *environment(const char *name)
{
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

static const char *jansson_version(void)
{
    return JANSSON_VERSION;
}

/* ---- text ---- */

static void print_device(const strata_device_info *device)
{
    printf("\ndevice %d         %s, compute capability %d.%d\n", device->ordinal, device->name, device->compute_major,
           device->compute_minor);
    printf("  %-21s %s, %s free\n", "memory", words_of_bytes(device->total_bytes).text,
           words_of_bytes(device->free_bytes).text);
    for (size_t i = 0; i < CAPABILITIES; i++)
        printf("  %-21s %s\n", capabilities[i].name, has(device, i) ? "yes" : "no");
}

static void print_info(const settings *from, const strata_driver_info *driver, const strata_device_info *devices)
{
    printf("strata           %s\n", strata_version_string());
    printf("driver           %s, CUDA %d.%d\n",
           driver->simulated ? "simulated" : plain(command_driver_word(driver)).text, driver->version / 1000,
           driver->version % 1000 / 10);
    printf("  choice         %s (STRATA_DRIVER is %s)\n", plain(driver->choice).text,
           *from->environment_driver ? plain(from->environment_driver).text : "not set");
    printf("  library        %s\n", plain(driver->library).text);
    uint64_t resident;
    printf("stack            %s (STRATA_STACK is %s)\n", plain(strata_runtime_default_stack()).text,
           from->environment_stack ? "set" : "not set");
    if (from->mode == STRATA_MODE_SANITIZER)
        printf("  mode           sanitizer, as STRATA_MODE says: direct in place of async and pool\n");
    if (*from->stack_problem)
        printf("  problem        %s\n", from->stack_problem);
    const char *reason = strata_host_allocator_reason();
    printf("host allocator   %s%s%s%s\n", strata_host_allocator_name(), reason ? " (" : "", reason ? reason : "",
           reason ? ")" : "");
    printf("  in use         %s\n", words_of_bytes(strata_host_bytes()).text);
    if (strata_host_resident(&resident))
        printf("  resident       %s\n", words_of_bytes(resident).text);
    printf("jansson          %s\n", jansson_version());
    printf("zlib             %s\n", zlibVersion());
    for (int i = 0; i < driver->device_count; i++)
        print_device(&devices[i]);
    if (driver->device_count == 0)
        printf("\nThe driver has no device.\n");
}

/* ---- JSON ---- */

static json_t *device_object(const strata_device_info *device)
{
    json_t *object = json_object();
    json_t *able = json_object();
    json_set_number(object, "ordinal", (uint64_t)device->ordinal);
    json_object_set_new(object, "name", json_text(device->name));
    json_object_set_new(object, "compute_capability", json_pack("[ii]", device->compute_major, device->compute_minor));
    json_set_number(object, "total_bytes", device->total_bytes);
    json_set_number(object, "free_bytes", device->free_bytes);
    for (size_t i = 0; i < CAPABILITIES; i++)
        json_object_set_new(able, capabilities[i].name, json_boolean(has(device, i)));
    json_object_set_new(object, "capabilities", able);
    return object;
}

static json_t *string_or_null(const char *text)
{
    return text ? json_text(text) : json_null();
}

static bool print_json(const settings *from, const strata_driver_info *driver, const strata_device_info *devices)
{
    json_t *object = json_object();
    json_t *list = json_array();
    uint64_t resident;
    json_object_set_new(object, "strata", json_string(strata_version_string()));
    json_object_set_new(object, "driver", json_text(command_driver_word(driver)));
    json_object_set_new(object, "driver_choice", json_text(driver->choice));
    json_object_set_new(object, "driver_library", json_text(driver->library));
    json_set_number(object, "driver_version", (uint64_t)driver->version);
    json_object_set_new(object, "simulated", json_boolean(driver->simulated));
    json_object_set_new(object, "stack", json_text(strata_runtime_default_stack()));
    json_object_set_new(object, "mode", json_string(from->mode == STRATA_MODE_SANITIZER ? "sanitizer" : "normal"));
    json_object_set_new(object, "stack_problem", string_or_null(*from->stack_problem ? from->stack_problem : NULL));
    json_object_set_new(object, "environment",
                        json_pack("{so, so}", "STRATA_DRIVER",
                                  string_or_null(*from->environment_driver ? from->environment_driver : NULL),
                                  "STRATA_STACK", string_or_null(from->environment_stack)));
    json_object_set_new(object, "host_allocator", json_string(strata_host_allocator_name()));
    json_object_set_new(object, "host_allocator_reason", string_or_null(strata_host_allocator_reason()));
    json_set_number(object, "host_bytes", strata_host_bytes());
    if (strata_host_resident(&resident))
        json_set_number(object, "host_resident", resident);
    json_object_set_new(object, "jansson", json_string(jansson_version()));
    json_object_set_new(object, "zlib", json_string(zlibVersion()));
    for (int i = 0; i < driver->device_count; i++)
        json_array_append_new(list, device_object(&devices[i]));
    json_object_set_new(object, "devices", list);
    bool written = json_dumpf(object, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII) == 0;
    json_decref(object);
    printf("\n");
    return written;
}

static void check_stack(settings *from)
{
    strata_status status = strata_builtin_register();
    if (status == STRATA_SUCCESS)
        status = strata_check_stack_text(strata_runtime_default_stack());
    if (status == STRATA_SUCCESS)
        status = strata_mode_now(&from->mode);
    if (status != STRATA_SUCCESS)
        snprintf(from->stack_problem, sizeof from->stack_problem, "%s", strata_last_error()->message);
}

/* Describes all devices, in an array that the caller frees. NULL, with the reason on stderr. */
static strata_device_info *describe_devices(const settings *from, int count)
{
    strata_device_info *devices = calloc((size_t)count + 1, sizeof *devices);
    if (!devices) {
        fprintf(stderr, "%s: out of host memory\n", from->program);
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        if (strata_device_get_info(i, &devices[i]) != STRATA_SUCCESS) {
            fprintf(stderr, "%s: device %d: %s\n", from->program, i, strata_last_error()->message);
            free(devices);
            return NULL;
        }
    }
    return devices;
}

static const struct argp_option options[] = {
    {"driver", OPTION_DRIVER, "DRIVER", 0,
     "auto, cuda, sim, or the path of a driver's library; default: STRATA_DRIVER, else auto", 0},
    {"json", OPTION_JSON, NULL, 0, "Print one JSON object", 0},
    {0},
};
static const struct argp usage = {.options = options,
                                  .parser = parse,
                                  .doc = "Prints the driver, the devices, and the stack of the environment.",
                                  .children = command_common};

static const command_values values[] = {{"driver", COMMAND_DRIVERS, true}, {0}};

static int run(int argc, char **argv)
{
    settings from = {
        .program = argv[0],
        .environment_stack = strata_runtime_environment_stack(),
    };
    const char *found = environment("STRATA_DRIVER");
    snprintf(from.environment_driver, sizeof from.environment_driver, "%s", found ? found : "");
    strata_driver_info driver;
    if (!command_parse(&usage, argc, argv, 0, &from))
        return COMMAND_USAGE;
    if (!command_open_driver(from.program, from.driver, &driver))
        return COMMAND_USAGE;
    strata_device_info *devices = describe_devices(&from, driver.device_count);
    if (!devices)
        return COMMAND_FOUND;
    check_stack(&from);
    bool written = true;
    if (from.json)
        written = print_json(&from, &driver, devices);
    else
        print_info(&from, &driver, devices);
    free(devices);
    return written && !*from.stack_problem ? COMMAND_FINE : COMMAND_FOUND;
}

const command command_info = {"info", "strata info", "driver, devices, and the stack of the environment",
                              &usage, values,        run};
