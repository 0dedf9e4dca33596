/* A stack of free events under its lock. */
#include "core/streams/events.h"

#include "core/base/host_memory.h"
#include "core/base/object_counts.h"

#include <string.h>

strata_status strata_device_take_event(strata_device *device, CUevent *out)
{
    *out = NULL;
    strata_lock_take(&device->events_lock);
    if (device->event_count)
        *out = device->events[--device->event_count];
    strata_lock_release(&device->events_lock);
    if (*out)
        return STRATA_SUCCESS;
    strata_call_scope scope;
    strata_status status = strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.EventCreate(out, CU_EVENT_DISABLE_TIMING);
    strata_call_scope_leave(&scope);
    if (result == CUDA_SUCCESS) {
        strata_object_made(STRATA_OBJECT_EVENT);
        return STRATA_SUCCESS;
    }
    *out = NULL;
    return strata_fail_driver(result, "cuEventCreate", "device %d", device->ordinal);
}

void strata_device_give_event(strata_device *device, CUevent event)
{
    bool kept = false;
    strata_lock_take(&device->events_lock);
    if (device->event_count == device->event_capacity) {
        size_t capacity = device->event_capacity ? 2 * device->event_capacity : 64;
        CUevent *events = strata_host_zalloc(capacity * sizeof *events);
        if (events) {
            if (device->event_count)
                memcpy(events, device->events, device->event_count * sizeof *events);
            strata_host_free(device->events);
            device->events = events;
            device->event_capacity = capacity;
        }
    }
    if (device->event_count < device->event_capacity) {
        device->events[device->event_count++] = event;
        kept = true;
    }
    strata_lock_release(&device->events_lock);
    if (!kept) {
        strata_cu.EventDestroy(event);
        strata_object_ended(STRATA_OBJECT_EVENT);
    }
}
