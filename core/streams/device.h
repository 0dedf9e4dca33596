/* A device as the process shares it: primary context, capabilities, legacy stream and events. */
#ifndef STRATA_CORE_STREAMS_DEVICE_H
#define STRATA_CORE_STREAMS_DEVICE_H

#include "core/base/driver_state.h"
#include "core/base/lock.h"
#include "core/base/timestamp.h"
#include "core/streams/call_scope.h"

#include <strata/info.h>

enum { STRATA_DEVICE_LIMIT = 64 };

struct strata_timeline;

struct strata_device {
    int ordinal;
    CUdevice handle;
    CUcontext context;             /* the primary one, retained until the process ends or it is reset */
    unsigned long long context_id; /* of the context, which is another after a reset; 0: the driver gives none */
    _Atomic uint64_t asked_at;     /* when strata_check_device_lately asked the driver; any thread, relaxed */
    _Atomic bool lost;             /* the context was reset: its streams, events and memory are gone; any thread */
    _Atomic uint32_t ending;       /* calls that will end the context once its users have left; any thread */
    bool released; /* of a lost device: its reference to the context went back; guarded by the lock of device.c */
    strata_device_info info;
    struct strata_timeline *legacy;

    strata_lock events_lock;
    CUevent *events; /* free ones; guarded by events_lock */
    size_t event_count, event_capacity;
    struct strata_wait_memory *wait_memory; /* of strata_device_wait: a list; guarded by events_lock */
};

/* Opened on first use, with the driver; later calls take no lock. Errors: INVALID_VALUE, DRIVER_NOT_FOUND, DRIVER,
 * SHUT_DOWN, FORKED, OUT_OF_HOST_MEMORY. */
strata_status strata_device_get(int ordinal, strata_device **out);

/* Whether the context was reset, as far as is known. */
static inline bool strata_device_is_lost(const strata_device *device)
{
    return __builtin_expect(atomic_load_explicit(&device->lost, memory_order_acquire), 0);
}

/* Whether the driver can be called for objects of the device. */
static inline bool strata_device_is_usable(const strata_device *device)
{
    return strata_driver_is_open() && !strata_device_is_lost(device);
}

/* As strata_device_is_usable, and asks the driver about a reset. Raises nothing. */
bool strata_device_is_usable_now(strata_device *device);

/* SUCCESS, or DEVICE_RESET. The first tells what is known; the second asks the driver. One of them comes before any use
 * of stored handles: on handles of streams from before a reset a driver may crash once the context has begun anew
 * (tests/answers/h200.txt, "primary_reset.anew."). */
strata_status strata_check_device(const strata_device *device);
strata_status strata_check_device_now(strata_device *device);

/* As strata_check_device_now, for hot paths: asks the driver once in some milliseconds. No context ends and begins anew
 * in that time, and while it has ended the driver refuses its handles. */
strata_status strata_check_device_again(strata_device *device, uint64_t now);
static inline strata_status strata_check_device_lately(strata_device *device)
{
    const uint64_t now = strata_timestamp_coarse();
    return __builtin_expect(atomic_load_explicit(&device->asked_at, memory_order_relaxed) == now, 1)
               ? STRATA_SUCCESS
               : strata_check_device_again(device, now);
}

/* Both ask the driver, take no lock and raise nothing. The first: whether the device's context is the one that was
 * retained. The second marks each device that it finds to be lost; true if there was one. */
bool strata_device_has_its_context(const strata_device *device);
bool strata_devices_look(void);

/* Around a call that ends the context once all of its users have left: those that wait for other threads give up
 * meanwhile, since these may wait for that call. */
void strata_device_mark_ending(strata_device *device, bool begins);
static inline bool strata_device_is_ending(const strata_device *device)
{
    return atomic_load_explicit(&device->ending, memory_order_acquire) != 0;
}

/* Asks the driver whether the device has a primary context: of a device that is lost, whether it has begun anew. True
 * too if the driver does not say. */
bool strata_device_is_active(const strata_device *device);

/* Gives the reference to the primary context back, for a program that has none of its own left. True: it was the last
 * one, the context has ended, and the device is lost as after a reset. Else the reference is there as before. That of a
 * device that is lost already goes back for good, unless the context has begun anew. */
bool strata_device_give_back(int ordinal);

/* Treats the context as reset: a fault has ended it, so that no call in it succeeds and nothing of it can be ended. */
void strata_device_abandon(strata_device *device);

/* By ordinal; replaced after a reset. Written under a lock of device.c; never freed. */
extern _Atomic(strata_device *) strata_devices[STRATA_DEVICE_LIMIT] __attribute__((visibility("hidden")));

/* The open device; NULL if it was not opened. */
static inline strata_device *strata_device_if_open(int ordinal)
{
    return atomic_load_explicit(&strata_devices[ordinal], memory_order_acquire);
}

/* The device's free bytes. False, and 0 bytes, if the driver does not say. */
bool strata_device_read_free_bytes(strata_device *device, size_t *bytes);

/* The device's free bytes; 0 also if the driver does not say. */
size_t strata_device_free_bytes(strata_device *device);

#endif
