/* Arrow's device arrays as arguments of launches.
 *
 * Types and names are those of the Arrow C data interface and the C device data interface, with their guards, so that
 * this header can stand beside Arrow's own in any order:
 * https://arrow.apache.org/docs/format/CDeviceDataInterface.html. */
#ifndef STRATA_ARROW_H
#define STRATA_ARROW_H

#include <strata/launch.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE           2
#define ARROW_FLAG_MAP_KEYS_SORTED    4

struct ArrowSchema {
    const char *format; /* of the type */
    const char *name;
    const char *metadata;
    int64_t flags; /* ARROW_FLAG_ */
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *); /* NULL: released */
    void *private_data;
};

struct ArrowArray {
    int64_t length; /* in elements, like the next two */
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers; /* entries may be NULL */
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *); /* NULL: released */
    void *private_data;
};

#endif

#ifndef ARROW_C_DEVICE_DATA_INTERFACE
#define ARROW_C_DEVICE_DATA_INTERFACE

typedef int32_t ArrowDeviceType; /* the numbers of DLPack's DLDeviceType */

#define ARROW_DEVICE_CPU          1
#define ARROW_DEVICE_CUDA         2
#define ARROW_DEVICE_CUDA_HOST    3
#define ARROW_DEVICE_OPENCL       4
#define ARROW_DEVICE_VULKAN       7
#define ARROW_DEVICE_METAL        8
#define ARROW_DEVICE_VPI          9
#define ARROW_DEVICE_ROCM         10
#define ARROW_DEVICE_ROCM_HOST    11
#define ARROW_DEVICE_EXT_DEV      12
#define ARROW_DEVICE_CUDA_MANAGED 13
#define ARROW_DEVICE_ONEAPI       14
#define ARROW_DEVICE_WEBGPU       15
#define ARROW_DEVICE_HEXAGON      16

struct ArrowDeviceArray {
    struct ArrowArray array;
    int64_t device_id;
    ArrowDeviceType device_type;
    void *sync_event; /* NULL, or on CUDA the address of a CUevent to wait for before any use */
    int64_t reserved[3];
};

#endif

/* Names all buffers of the array, its children and its dictionary, as strata_launch_use_address does, and makes the
 * launch's stream wait for the array's event. The array need not outlive the call; its memory must outlive the work. A
 * child without elements is ignored.
 *
 * Strict launches refuse what is in no block of the stack, as well as memory of another device; permissive ones leave
 * it out and count each buffer (an array that is on no CUDA device: once), and still wait for the event. After an error
 * the stream waits for nothing more. A wait stays, if the launch is not submitted after all. Errors: those of
 * strata_launch_use_address, INVALID_VALUE (released; no such pointers or counts; nested more than 64 deep),
 * WRONG_DEVICE, STREAM_CAPTURE (an event, and the stream is being captured), DRIVER. */
STRATA_API strata_status strata_launch_use_arrow(strata_launch *launch, const struct ArrowDeviceArray *array,
                                                 strata_access access);

#ifdef __cplusplus
}
#endif

#endif
