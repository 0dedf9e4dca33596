/* Samples, their mappings, and the range of addresses. */
#include "resources/sampling/internal.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "core/blocks/uses.h"
#include "core/stack/completions.h"
#include "core/streams/internal_streams.h"
#include "core/streams/known_streams.h"

#include <string.h>

enum { TRIES_TO_END = 2 }; /* as in resources/owners/async.c */

/* ---- shared by all samples ---- */

static CUmemAllocationProp properties_of(const sampling *self)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = self->device->ordinal},
        .allocFlags = {.gpuDirectRDMACapable = self->rdma},
    };
}

/* Asks for the granule, and whether memory can be registered with a network card: it must be made so. The context is
 * current. */
static strata_status query_device(sampling *self)
{
    int rdma = 0;
    size_t granule = 0;
    strata_cu.DeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                                 self->device->handle);
    self->rdma = rdma != 0;
    const CUmemAllocationProp properties = properties_of(self);
    CUresult result =
        strata_cu.MemGetAllocationGranularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuMemGetAllocationGranularity",
                                  "guard: querying the granularity of mappings");
    self->granule = granule;
    return STRATA_SUCCESS;
}

static strata_status allocate_zones(sampling *self)
{
    void *zones = NULL;
    size_t bytes = self->capacity * RED_ZONES * SAMPLE_ZONE;
    CUresult result = strata_cu.MemHostAlloc(&zones, bytes, 0);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuMemHostAlloc", "%s of pinned memory for a guard",
                                  strata_size_text(bytes).text);
    self->zones = zones;
    return STRATA_SUCCESS;
}

/* Reserves the requested addresses, or half of them, and so on, down to twice the mappings. */
static strata_status reserve_range(sampling *self)
{
    CUdeviceptr base = 0;
    uint64_t range = self->range & ~(self->granule - 1), least = 2 * self->least_range;
    CUresult result = strata_cu.MemAddressReserve(&base, (size_t)range, 0, 0, 0);
    while (result == CUDA_ERROR_OUT_OF_MEMORY && range >= least) {
        range = range / 2 & ~(self->granule - 1);
        result = strata_cu.MemAddressReserve(&base, (size_t)range, 0, 0, 0);
    }
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuMemAddressReserve", "guard: %s of addresses",
                                  strata_size_text(range).text);
    self->next = self->granule;
    atomic_store_explicit(&self->base, base, memory_order_relaxed);
    atomic_store_explicit(&self->span, range, memory_order_release);
    return STRATA_SUCCESS;
}

/* Makes what all samples share. After a failure, the next try continues. open_lock is held. */
static strata_status make_shared(sampling *self)
{
    strata_status status = STRATA_SUCCESS;
    if (!self->stream) {
        status = strata_internal_stream_create(self->device, false, "a stream for sampled blocks", &self->stream);
        self->timeline = self->stream ? strata_known_timeline(self->device, self->stream) : NULL;
    }
    strata_call_scope scope;
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    if (!self->granule)
        status = query_device(self);
    if (status == STRATA_SUCCESS && !self->zones)
        status = allocate_zones(self);
    if (status == STRATA_SUCCESS)
        status = reserve_range(self);
    strata_call_scope_leave(&scope);
    return status;
}

strata_status samples_open(sampling *self)
{
    if (atomic_load_explicit(&self->span, memory_order_acquire))
        return STRATA_SUCCESS;
    strata_lock_take(&self->open_lock);
    bool there = atomic_load_explicit(&self->span, memory_order_relaxed) != 0;
    strata_status status = there ? STRATA_SUCCESS : make_shared(self);
    if (!there && status == STRATA_SUCCESS) {
        strata_fault_candidates_enter(&self->candidates);
        self->named = true;
    }
    strata_lock_release(&self->open_lock);
    return status;
}

/* ---- addresses and numbers: the lock is held ---- */

static sample *sample_at(const sampling *self, uint32_t index)
{
    return index ? &self->samples[index - 1] : NULL;
}

static uint32_t index_of(const sampling *self, const sample *one)
{
    return one ? (uint32_t)(one - self->samples) + 1 : 0;
}

/* Inserts a sample before `ahead`; NULL: at the end. */
static void insert_by_address(sampling *self, sample *one, sample *ahead)
{
    uint32_t index = index_of(self, one);
    uint32_t before = ahead ? ahead->by_address.before : self->by_address.last;
    one->by_address = (sample_link){.before = before, .after = index_of(self, ahead)};
    *(before ? &sample_at(self, before)->by_address.after : &self->by_address.first) = index;
    *(ahead ? &ahead->by_address.before : &self->by_address.last) = index;
}

static void remove_by_address(sampling *self, const sample *one)
{
    const sample_link link = one->by_address;
    *(link.before ? &sample_at(self, link.before)->by_address.after : &self->by_address.first) = link.after;
    *(link.after ? &sample_at(self, link.after)->by_address.before : &self->by_address.last) = link.before;
    if (sample_at(self, self->ahead) == one)
        self->ahead = link.after;
}

/* The first address that another sample may use. */
static uint64_t end_of(const sampling *self, const sample *one)
{
    return one->start + one->mapped + self->granule - atomic_load_explicit(&self->base, memory_order_relaxed);
}

/* Finds the next addresses in the circle with room for a mapping and the granule behind it. False: there are none. */
static bool find_addresses(sampling *self, sample *one, uint64_t mapped)
{
    CUdeviceptr base = atomic_load_explicit(&self->base, memory_order_relaxed);
    uint64_t span = atomic_load_explicit(&self->span, memory_order_relaxed);
    uint64_t bytes = mapped + self->granule, at = self->next;
    sample *ahead = sample_at(self, self->ahead);
    for (bool turned = false; bytes > (ahead ? ahead->start - base : span) - at;) {
        if (!ahead && turned)
            return false;
        turned |= !ahead;
        at = ahead ? end_of(self, ahead) : self->granule;
        ahead = sample_at(self, ahead ? ahead->by_address.after : self->by_address.first);
    }
    *one = (sample){.state = SAMPLE_TAKEN, .start = base + at, .mapped = mapped};
    insert_by_address(self, one, ahead);
    self->next = at + bytes;
    self->ahead = index_of(self, ahead);
    return true;
}

static bool has_room(const sampling *self, uint64_t mapped)
{
    uint64_t now = atomic_load_explicit(&self->mapped_bytes, memory_order_relaxed);
    uint64_t most = atomic_load_explicit(&self->most_bytes, memory_order_relaxed);
    return self->in_use < atomic_load_explicit(&self->most_blocks, memory_order_relaxed) && now <= most &&
           mapped <= most - now;
}

static sample *first_free(sampling *self)
{
    for (size_t i = 0; i < self->capacity; i++)
        if (self->samples[i].state == SAMPLE_FREE)
            return &self->samples[i];
    return NULL;
}

static void count_mapped(sampling *self, uint64_t bytes)
{
    uint64_t now = atomic_load_explicit(&self->mapped_bytes, memory_order_relaxed);
    atomic_store_explicit(&self->mapped_bytes, now + bytes, memory_order_relaxed);
}

static void count_leaving(sampling *self, uint32_t more)
{
    uint32_t now = atomic_load_explicit(&self->leaving, memory_order_relaxed);
    atomic_store_explicit(&self->leaving, now + more, memory_order_relaxed);
}

static void remove_by_number(sampling *self, const sample *one)
{
    const sample_link link = one->by_number;
    *(link.before ? &sample_at(self, link.before)->by_number.after : &self->by_number.first) = link.after;
    *(link.after ? &sample_at(self, link.after)->by_number.before : &self->by_number.last) = link.before;
}

static void give_number(sampling *self, sample *one)
{
    uint32_t index = index_of(self, one);
    if (one->number)
        remove_by_number(self, one);
    uint32_t last = self->by_number.last;
    one->by_number = (sample_link){.before = last};
    *(last ? &sample_at(self, last)->by_number.after : &self->by_number.first) = index;
    self->by_number.last = index;
    one->number = ++self->number;
}

static void release_sample(sampling *self, sample *one)
{
    remove_by_address(self, one);
    if (one->number)
        remove_by_number(self, one);
    self->in_use--;
    count_mapped(self, -one->mapped);
    one->state = SAMPLE_FREE;
}

/* ---- taking ---- */

sample *sample_take(sampling *self, size_t bytes)
{
    sample *taken = NULL;
    if (bytes > atomic_load_explicit(&self->most_bytes, memory_order_relaxed) || bytes > self->range)
        return NULL;
    uint64_t mapped = (bytes + self->granule - 1) & ~(self->granule - 1);
    strata_lock_take(&self->lock);
    if (has_room(self, mapped) && (taken = first_free(self)) && !find_addresses(self, taken, mapped))
        taken = NULL;
    if (taken) {
        self->in_use++;
        count_mapped(self, mapped);
    }
    strata_lock_release(&self->lock);
    return taken;
}

CUdeviceptr sample_address(const sample *one, size_t bytes, uint64_t alignment)
{
    return (one->start + one->mapped - bytes) & ~(alignment - 1);
}

void sample_zones(const sampling *self, const sample *one, checked_range zones[RED_ZONES], unsigned char **copies)
{
    CUdeviceptr address = one->block.address, end = address + one->block.requested;
    uint64_t before = address - one->start;
    size_t front = before < SAMPLE_ZONE ? (size_t)before : SAMPLE_ZONE;
    zones[0] = (checked_range){
        .address = address - front, .bytes = front, .expected = RED_ZONE_BYTE, .kind = STRATA_GUARD_UNDERRUN};
    zones[1] = (checked_range){.address = end,
                               .bytes = (size_t)(one->start + one->mapped - end),
                               .expected = RED_ZONE_BYTE,
                               .kind = STRATA_GUARD_OVERRUN};
    *copies = self->zones + (size_t)(one - self->samples) * RED_ZONES * SAMPLE_ZONE;
}

/* ---- mappings ---- */

/* Makes and maps a sample's memory. *call: the last driver call. The context is current. */
static CUresult map_memory(const sampling *self, sample *one, const char **call)
{
    const CUmemAllocationProp properties = properties_of(self);
    const CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t bytes = (size_t)one->mapped;
    CUmemGenericAllocationHandle handle;
    *call = "cuMemCreate";
    CUresult result = strata_cu.MemCreate(&handle, bytes, &properties, 0);
    if (result != CUDA_SUCCESS)
        return result;
    one->handle = handle;
    *call = "cuMemMap";
    if ((result = strata_cu.MemMap(one->start, bytes, 0, handle, 0)) != CUDA_SUCCESS)
        return result;
    one->is_mapped = true;
    *call = "cuMemSetAccess";
    if ((result = strata_cu.MemSetAccess(one->start, bytes, &access, 1)) != CUDA_SUCCESS)
        return result;
    if (strata_cu.MemRelease(handle) == CUDA_SUCCESS) /* else released with the mapping */
        one->handle = 0;
    return CUDA_SUCCESS;
}

strata_status sample_map(sampling *self, sample *one)
{
    strata_call_scope scope;
    strata_status status = strata_check_device_now(self->device); /* before a fill that nothing could wait for */
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const char *call;
    CUresult result = map_memory(self, one, &call);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, call, "mapping %s for a sampled block", strata_size_text(one->mapped).text);
}

static strata_status unmap(sampling *self, sample *one)
{
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const char *call = "cuMemUnmap";
    CUresult result = one->is_mapped ? strata_cu.MemUnmap(one->start, (size_t)one->mapped) : CUDA_SUCCESS;
    one->is_mapped &= result != CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && one->handle) {
        call = "cuMemRelease";
        result = strata_cu.MemRelease(one->handle);
        one->handle = result == CUDA_SUCCESS ? 0 : one->handle;
    }
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, call, "unmapping sampled block 0x%llx",
                                                       (unsigned long long)one->block.address);
}

/* ---- zones ---- */

strata_status sample_fill_zones(sampling *self, const sample *one, CUstream stream, bool *filling)
{
    checked_range zones[RED_ZONES];
    unsigned char *copies;
    strata_call_scope scope;
    sample_zones(self, one, zones, &copies);
    strata_status status =
        strata_call_scope_enter(&scope, self->device, strata_call_scope_for(stream) | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < RED_ZONES && result == CUDA_SUCCESS; i++) {
        if (!zones[i].bytes)
            continue;
        result = strata_cu.MemsetD8Async(zones[i].address, RED_ZONE_BYTE, zones[i].bytes, stream);
        *filling |= result == CUDA_SUCCESS;
    }
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuMemsetD8Async", "filling the zones of block 0x%llx",
                                                       (unsigned long long)one->block.address);
}

static strata_status copy_zones(sampling *self, const sample *one)
{
    checked_range zones[RED_ZONES];
    unsigned char *to;
    strata_call_scope scope;
    sample_zones(self, one, zones, &to);
    strata_status status = strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < RED_ZONES && result == CUDA_SUCCESS; i++, to += SAMPLE_ZONE)
        if (zones[i].bytes)
            result = strata_cu.MemcpyDtoHAsync(to, zones[i].address, zones[i].bytes, self->stream);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuMemcpyDtoHAsync", "checking the zones of block 0x%llx",
                                    (unsigned long long)one->block.address);
}

static bool check_zone(const sample *one, const checked_range *zone, const unsigned char *at,
                       strata_guard_finding *finding)
{
    size_t first = zone->bytes, changed = 0;
    for (size_t i = zone->bytes; i-- > 0;) {
        if (at[i] == zone->expected)
            continue;
        first = i;
        changed++;
    }
    size_t shown = zone->bytes - first;
    *finding = (strata_guard_finding){
        .size = sizeof *finding,
        .kind = (strata_guard_kind)zone->kind,
        .block = one->block,
        .freed = true,
        .offset = (int64_t)(zone->address + first - one->block.address),
        .changed = changed,
        .expected = zone->expected,
        .shown = (uint8_t)(shown < STRATA_GUARD_BYTES_SHOWN ? shown : STRATA_GUARD_BYTES_SHOWN),
        .allocated_at = one->allocated_at,
        .freed_at = one->freed_at,
    };
    memcpy(finding->found, at + first, finding->shown);
    return changed != 0;
}

/* Checks a sample's copied zones, once. Returns how many findings are to be reported. */
static size_t check_zones(sampling *self, sample *one, strata_guard_finding findings[RED_ZONES])
{
    checked_range zones[RED_ZONES];
    unsigned char *at;
    size_t count = 0;
    if (!one->copied)
        return 0;
    one->copied = false;
    if (!strata_device_has_its_context(self->device)) /* the pinned memory has ended with it */
        return 0;
    sample_zones(self, one, zones, &at);
    for (unsigned i = 0; i < RED_ZONES; i++, at += SAMPLE_ZONE)
        count += check_zone(one, &zones[i], at, &findings[count]);
    findings_record(&self->log, findings, count);
    return count;
}

/* ---- leaving ---- */

static void enter_leaving(sampling *self, sample *one)
{
    one->point = strata_timeline_now(self->timeline);
    strata_error_suppress_begin(); /* after a failure, querying the point records the event */
    one->covered = strata_timeline_close_epoch(one->point) == STRATA_SUCCESS;
    strata_error_suppress_end(false);
    strata_lock_take(&self->lock);
    give_number(self, one);
    one->state = SAMPLE_LEAVING;
    count_leaving(self, 1);
    strata_lock_release(&self->lock);
}

void sample_leave(sampling *self, sample *one)
{
    one->copied = copy_zones(self, one) == STRATA_SUCCESS;
    if (!one->copied)
        atomic_fetch_add_explicit(&self->unchecked, 1, memory_order_relaxed);
    enter_leaving(self, one);
}

void sample_abandon(sampling *self, sample *one)
{
    one->block.id = (strata_block_id){0};
    one->entry = NULL;
    if (one->is_mapped || one->handle) {
        enter_leaving(self, one);
        return;
    }
    strata_lock_take(&self->lock);
    release_sample(self, one);
    strata_lock_release(&self->lock);
}

/* The sample of a block that the calling thread has retired. If the block was found before its allocation returned, the
 * sample is about to be LIVE: the held lock is released for a moment. */
static sample *at_address(sampling *self, CUdeviceptr address, sample_state state)
{
    for (unsigned spins = 0;;) {
        for (size_t i = 0; i < self->capacity; i++)
            if (self->samples[i].state == state && self->samples[i].block.address == address)
                return &self->samples[i];
        strata_lock_release(&self->lock);
        strata_backoff(&spins);
        strata_lock_take(&self->lock);
    }
}

sample *sample_begin_free(sampling *self, const strata_block *block, strata_entry *entry, uint32_t freed_at)
{
    strata_lock_take(&self->lock);
    sample *one = at_address(self, block->address, SAMPLE_LIVE);
    one->state = SAMPLE_FREEING;
    one->entry = entry;
    one->freed_id = block->id;
    one->freed_at = freed_at;
    strata_lock_release(&self->lock);
    return one;
}

void sample_revive(sampling *self, sample *one)
{
    strata_lock_take(&self->lock);
    strata_entry *entry = one->entry;
    one->freed_at = 0;
    one->entry = NULL;
    one->state = SAMPLE_LIVE;
    strata_lock_release(&self->lock);
    strata_entry_revive(entry);
}

sample *sample_claim_deferred(sampling *self, CUdeviceptr address)
{
    strata_lock_take(&self->lock);
    sample *one = at_address(self, address, SAMPLE_DEFERRED);
    one->state = SAMPLE_FREEING;
    strata_lock_release(&self->lock);
    return one;
}

void sample_set(sampling *self, sample *one, sample_state state)
{
    strata_lock_take(&self->lock);
    if (state == SAMPLE_LIVE)
        give_number(self, one);
    one->state = state;
    strata_lock_release(&self->lock);
}

/* ---- ending ---- */

/* The first leaving sample up to `number`; NULL: none. *others: threads work on some. The lock is held. */
static sample *first_leaving(sampling *self, uint64_t number, bool *others)
{
    sample *first = NULL;
    *others = false;
    for (size_t i = 0; i < self->capacity; i++) {
        sample *one = &self->samples[i];
        if ((one->state != SAMPLE_LEAVING && one->state != SAMPLE_ENDING) || one->number > number)
            continue;
        if (one->state == SAMPLE_ENDING)
            *others = true;
        else if (!first || one->number < first->number)
            first = one;
    }
    return first;
}

static sample *take_leaving(sampling *self)
{
    bool others;
    strata_lock_take(&self->lock);
    sample *one = first_leaving(self, UINT64_MAX, &others);
    if (one)
        one->state = SAMPLE_ENDING;
    strata_lock_release(&self->lock);
    return one;
}

static bool is_complete(sample *one)
{
    if (!one->covered)
        one->covered = strata_timeline_close_epoch(one->point) == STRATA_SUCCESS;
    strata_point_query(one->point); /* updates what is known complete */
    return strata_point_seen_complete(one->point);
}

/* Reports a block's completion and frees its entry. */
static void finish_block(sampling *self, const sample *one)
{
    if (!one->entry)
        return;
    strata_report_completion_above(&self->resource,
                                   &(strata_completion){.id = one->freed_id, .bytes = one->block.bytes, .last = true});
    strata_entry_destroy(strata_resource_table(&self->resource), one->entry, one->block.id.slot);
}

static freed_block freed_block_of(const sample *one)
{
    return (freed_block){.block = one->block, .allocated_at = one->allocated_at, .freed_at = one->freed_at};
}

/* Unmaps and frees the thread's sample. After a failure it is still the thread's. */
static strata_status release_unmapped(sampling *self, sample *one, size_t *bytes)
{
    strata_status status = unmap(self, one);
    if (status != STRATA_SUCCESS)
        return status;
    finish_block(self, one);
    *bytes += one->entry ? one->block.bytes : 0;
    strata_lock_take(&self->lock);
    if (one->entry)
        self->remembered[self->remembered_count++ % SAMPLES_REMEMBERED] = freed_block_of(one);
    release_sample(self, one);
    count_leaving(self, UINT32_MAX);
    strata_lock_release(&self->lock);
    return STRATA_SUCCESS;
}

/* Reports findings; the thread's last error stays that of `status`. */
static void report_after(const sampling *self, strata_status status, const strata_guard_finding *findings, size_t count)
{
    if (status != STRATA_SUCCESS)
        strata_error_suppress_begin();
    findings_report(&self->log, findings, count);
    if (status != STRATA_SUCCESS)
        strata_error_suppress_end(false);
}

/* Ends the thread's complete sample, or puts it back among the leaving ones. Findings are reported last: other threads
 * wait for the sample, and the callback may wait for them. */
static strata_status finish_sample(sampling *self, sample *one, size_t *bytes)
{
    strata_guard_finding findings[RED_ZONES];
    size_t found = check_zones(self, one, findings);
    strata_status status = release_unmapped(self, one, bytes);
    if (status != STRATA_SUCCESS)
        sample_set(self, one, SAMPLE_LEAVING);
    if (found)
        report_after(self, status, findings, found);
    return status;
}

strata_status samples_poll(sampling *self, size_t *bytes)
{
    strata_status status = STRATA_SUCCESS;
    *bytes = 0;
    while (status == STRATA_SUCCESS && atomic_load_explicit(&self->leaving, memory_order_relaxed)) {
        sample *one = take_leaving(self);
        if (!one)
            break;
        if (!is_complete(one)) {
            sample_set(self, one, SAMPLE_LEAVING);
            break;
        }
        status = finish_sample(self, one, bytes);
    }
    return status;
}

strata_status samples_wait(sampling *self, size_t *bytes)
{
    unsigned spins = 0;
    *bytes = 0;
    strata_lock_take(&self->lock);
    uint64_t number = self->number;
    strata_lock_release(&self->lock);
    for (;;) {
        bool others;
        strata_lock_take(&self->lock);
        const sample *one = first_leaving(self, number, &others);
        strata_point point = one ? one->point : 0;
        strata_lock_release(&self->lock);
        if (!one && !others)
            return STRATA_SUCCESS;
        if (!one) {
            strata_backoff(&spins);
            continue;
        }
        size_t now = 0;
        strata_status status = strata_point_synchronize_for(self->device, point);
        if (status == STRATA_SUCCESS)
            status = samples_poll(self, &now);
        *bytes += now;
        if (status != STRATA_SUCCESS)
            return status;
    }
}

/* Unmaps a sample, in two tries: there is no later opportunity. */
static void unmap_for_good(sampling *self, sample *one)
{
    for (int tries = 0; tries < TRIES_TO_END; tries++)
        if (unmap(self, one) == STRATA_SUCCESS)
            return;
}

static void destroy_shared(sampling *self)
{
    strata_call_scope scope;
    bool entered = false;
    for (int tries = 0; tries < TRIES_TO_END && !entered; tries++)
        entered = strata_call_scope_enter(&scope, self->device,
                                          STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED) == STRATA_SUCCESS;
    if (!entered)
        return;
    uint64_t span = atomic_load_explicit(&self->span, memory_order_relaxed);
    if (span)
        strata_cu.MemAddressFree(atomic_load_explicit(&self->base, memory_order_relaxed), (size_t)span);
    if (!strata_device_is_lost(self->device))
        strata_cu.MemFreeHost(self->zones);
    strata_call_scope_leave(&scope);
}

/* Takes a sample for samples_give_back_lost. False: a thread works on it, or it has no memory. */
static bool take_lost(sampling *self, sample *one, sample_state *before)
{
    strata_lock_take(&self->lock);
    *before = one->state;
    const bool stays = *before == SAMPLE_LIVE || *before == SAMPLE_DEFERRED || *before == SAMPLE_LEAVING;
    const bool taken = stays && (one->is_mapped || one->handle);
    if (taken)
        one->state = SAMPLE_ENDING;
    strata_lock_release(&self->lock);
    return taken;
}

uint64_t samples_give_back_lost(sampling *self)
{
    uint64_t bytes = 0;
    sample_state before;
    for (size_t i = 0; self->stream && i < self->capacity; i++) {
        sample *one = &self->samples[i];
        if (!take_lost(self, one, &before))
            continue;
        bytes += unmap(self, one) == STRATA_SUCCESS ? one->mapped : 0;
        strata_lock_take(&self->lock);
        one->state = before;
        strata_lock_release(&self->lock);
    }
    return bytes;
}

void samples_close(sampling *self)
{
    if (self->named)
        strata_fault_candidates_leave(&self->candidates);
    if (!self->stream || !strata_driver_is_open())
        return; /* nothing was made, not even the array of samples */
    for (size_t i = 0; i < self->capacity; i++)
        if (self->samples[i].state != SAMPLE_FREE)
            unmap_for_good(self, &self->samples[i]);
    bool ended = false;
    for (int tries = 0; tries < TRIES_TO_END && !ended; tries++)
        strata_internal_stream_destroy(self->device, self->stream, &ended);
    if (self->zones)
        destroy_shared(self);
}

/* ---- looking ---- */

bool samples_find(sampling *self, CUdeviceptr address, strata_block *out)
{
    const strata_table *table = strata_resource_table(&self->resource);
    bool found = false;
    strata_lock_take(&self->lock);
    for (size_t i = 0; i < self->capacity && !found; i++) {
        const sample *one = &self->samples[i];
        found = one->state == SAMPLE_LIVE && address - one->block.address < one->block.bytes &&
                strata_table_state(table, one->block.id) == STRATA_BLOCK_LIVE;
        if (found)
            *out = one->block;
    }
    strata_lock_release(&self->lock);
    return found;
}

void samples_add_usage(sampling *self, strata_usage *usage)
{
    strata_lock_take(&self->lock);
    for (size_t i = 0; i < self->capacity; i++) {
        const sample *one = &self->samples[i];
        bool live = one->state == SAMPLE_LIVE || one->state == SAMPLE_FREEING;
        bool retired = one->state >= SAMPLE_DEFERRED && one->entry;
        usage->live_blocks += live;
        usage->live_bytes += live ? one->block.bytes : 0;
        usage->retired_bytes += retired ? one->block.bytes : 0;
        usage->bytes_outstanding += live || retired ? one->block.bytes : 0;
    }
    usage->reserved_bytes += (size_t)atomic_load_explicit(&self->mapped_bytes, memory_order_relaxed);
    strata_lock_release(&self->lock);
    if (usage->reserved_peak && usage->reserved_peak < usage->reserved_bytes)
        usage->reserved_peak = usage->reserved_bytes;
}

/* The next freed or live sample from *from on, which moves, newest first; NULL: none. The lock is held. */
static const sample *next_candidate(const sampling *self, bool freed, uint32_t *from)
{
    for (const sample *one; (one = sample_at(self, *from));) {
        *from = one->by_number.before;
        if (one->state >= SAMPLE_LIVE && one->block.id.generation && (one->state >= SAMPLE_DEFERRED) == freed)
            return one;
    }
    return NULL;
}

static strata_guard_finding candidate_of(const freed_block *memory, bool freed)
{
    return (strata_guard_finding){
        .size = sizeof(strata_guard_finding),
        .kind = STRATA_GUARD_ILLEGAL_ACCESS,
        .block = memory->block,
        .freed = freed,
        .allocated_at = memory->allocated_at,
        .freed_at = memory->freed_at,
    };
}

typedef struct candidate_walk {
    uint32_t live, freed; /* samples to look at next */
    uint64_t remembered;  /* how many of the ring were taken */
    bool turn;            /* a freed one is next */
} candidate_walk;

static bool next_freed(const sampling *self, candidate_walk *walk, strata_guard_finding *out)
{
    const sample *one = next_candidate(self, true, &walk->freed);
    uint64_t kept = self->remembered_count < SAMPLES_REMEMBERED ? self->remembered_count : SAMPLES_REMEMBERED;
    if (one) {
        const freed_block memory = freed_block_of(one);
        *out = candidate_of(&memory, true);
    } else if (walk->remembered < kept) {
        *out =
            candidate_of(&self->remembered[(self->remembered_count - ++walk->remembered) % SAMPLES_REMEMBERED], true);
    } else {
        return false;
    }
    return true;
}

static bool next_live(const sampling *self, candidate_walk *walk, strata_guard_finding *out)
{
    const sample *one = next_candidate(self, false, &walk->live);
    if (!one)
        return false;
    const freed_block memory = freed_block_of(one);
    *out = candidate_of(&memory, false);
    return true;
}

size_t samples_candidates(sampling *self, strata_guard_finding *candidates, size_t room, size_t *all)
{
    strata_guard_finding one;
    *all = 0;
    strata_lock_take(&self->lock);
    candidate_walk walk = {.live = self->by_number.last, .freed = self->by_number.last, .turn = true};
    for (;; walk.turn = !walk.turn) {
        bool any = walk.turn ? next_freed(self, &walk, &one) || next_live(self, &walk, &one)
                             : next_live(self, &walk, &one) || next_freed(self, &walk, &one);
        if (!any)
            break;
        if (*all < room)
            candidates[*all] = one;
        ++*all;
    }
    strata_lock_release(&self->lock);
    return *all < room ? *all : room;
}

static bool same_block(const strata_block *a, const strata_block *b)
{
    return a->id.generation == b->id.generation && a->id.slot == b->id.slot && a->id.table == b->id.table;
}

freed_block samples_remembered(sampling *self, const strata_block *block)
{
    freed_block found = {0};
    strata_lock_take(&self->lock);
    for (size_t i = 0; i < self->capacity; i++)
        if (self->samples[i].state >= SAMPLE_FREEING && same_block(&self->samples[i].block, block))
            found = freed_block_of(&self->samples[i]);
    for (size_t i = 0; i < SAMPLES_REMEMBERED && !found.block.id.generation; i++)
        if (same_block(&self->remembered[i].block, block))
            found = self->remembered[i];
    strata_lock_release(&self->lock);
    return found;
}

/* Looks at samples that are still mapped, then at the ring, newest first. */
freed_block samples_remembered_at(sampling *self, CUdeviceptr address)
{
    const sample *latest = NULL;
    freed_block found = {0};
    strata_lock_take(&self->lock);
    for (size_t i = 0; i < self->capacity; i++) {
        const sample *one = &self->samples[i];
        if (one->state >= SAMPLE_FREEING && one->block.id.generation && one->block.address == address &&
            (!latest || one->number > latest->number))
            latest = one;
    }
    if (latest)
        found = freed_block_of(latest);
    for (uint64_t i = 1; i <= SAMPLES_REMEMBERED && i <= self->remembered_count && !found.block.id.generation; i++) {
        const freed_block *one = &self->remembered[(self->remembered_count - i) % SAMPLES_REMEMBERED];
        if (one->block.address == address)
            found = *one;
    }
    strata_lock_release(&self->lock);
    return found;
}
