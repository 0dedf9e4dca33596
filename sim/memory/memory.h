/* Memory: addresses and their backing, allocation, maps, copies. Uses order/. Guarded by sim.lock. */
#ifndef STRATA_SIM_MEMORY_MEMORY_H
#define STRATA_SIM_MEMORY_MEMORY_H

#include "order/order.h"

typedef struct sim_space sim_space;
typedef struct sim_piece sim_piece;

/* ---- address.c ---- */

/* A range of device addresses without access rights; its bytes lie elsewhere. An extent of cuMemAlloc is backed as a
 * whole, of a pool only in some chunks. */
typedef struct sim_extent {
    struct sim_extent *previous;
    struct sim_extent *next;
    sim_node by_address; /* in sim_memory.extents */
    sim_index known;     /* blocks that the host knows, by their first granule */
    sim_index present;   /* blocks there for the device now */
    sim_space *space;
    sim_span *first;
    uint64_t address;
    uint64_t bytes;
    char *memory;
    uint64_t touched; /* bytes up to the end of what ever had memory */
} sim_extent;

bool sim_address_take(uint64_t bytes, uint64_t *address); /* whole pages */

/* As above, at a multiple of `alignment`, a power of two of at least a page; at `wish` if that is free. */
bool sim_address_take_aligned(uint64_t bytes, uint64_t alignment, uint64_t wish, uint64_t *address);
void sim_address_give(uint64_t address, uint64_t bytes);
void sim_address_close(void);
char *sim_backing_take(uint64_t bytes);
void sim_backing_expect(char *memory, uint64_t bytes); /* all of it is about to be written */
void sim_backing_empty(char *memory, uint64_t bytes);  /* drops the contents */
void sim_backing_give(char *memory, uint64_t bytes);

/* ---- span.c: spaces and their spans ---- */

/* Spans that wait for one queue's frees. */
typedef struct sim_bin {
    uint64_t component; /* the queue's, by uid */
    sim_tree by_size;
    uint64_t finished; /* the last free that is done */
    uint64_t seen;     /* the last of them that the host waited for */
} sim_bin;

/* Part of an extent: in use, free, or a hole. One in a bin was freed at `position` in the order of the bin's queue, by
 * `op` until that is done. */
typedef struct sim_span {
    sim_node by_size;
    struct sim_span *previous; /* neighbours in the extent */
    struct sim_span *next;
    sim_extent *extent;
    uint64_t address;
    uint64_t bytes;
    uint64_t asked; /* while in use */
    bool free;
    bool hole; /* whole chunks; not free */
    sim_bin *bin;
    uint64_t position;
    sim_op *op;
} sim_span;

/* A memory pool, or what cuMemAlloc uses. */
typedef struct sim_space {
    sim_device *device;
    bool direct;        /* cuMemAlloc's: idle extents go back at once */
    uint64_t limit;     /* most bytes to hold; 0: no limit */
    uint64_t keep;      /* release threshold */
    bool follow_events; /* the three reuse policies */
    bool opportunistic;
    bool internal_dependencies;
    uint64_t reserved;
    uint64_t reserved_high;
    uint64_t used; /* as asked for */
    uint64_t used_high;
    bool unseen;    /* a queue is gone whose frees the host had not waited for */
    bool unsettled; /* frees are done whose spans are in bins */
    sim_extent *extents;
    sim_tree common; /* free spans that any queue may use */
    sim_bin **bins;  /* by the component's slot */
    uint32_t bin_slots;
    struct sim_space *previous;
    struct sim_space *next;
} sim_space;

void sim_space_open(sim_space *space, sim_device *device);
void sim_space_close(sim_space *space);

/* Takes a span. *wait_for: NULL, or an operation, held for the caller, that must be done before the queue may use the
 * span. Without a queue, only common spans are taken. */
CUresult sim_space_take(sim_space *space, sim_queue *queue, uint64_t bytes, sim_span **span, sim_op **wait_for);

/* Makes what is needed to record a free on that queue. False without memory. */
bool sim_space_expect(sim_space *space, const sim_queue *queue);

/* Frees the span once `op`, a free not yet submitted, is done; NULL: now. */
void sim_space_give(sim_span *span, sim_op *op);
void sim_space_freed(sim_span *span);                            /* its op is done */
void sim_space_observe(sim_space *space, const sim_point *seen); /* NULL: the host waited for all work */
void sim_space_settle(sim_space *space); /* any queue may use finished frees, whatever the policies */
void sim_space_forget_queue(sim_space *space, const sim_queue *queue);
void sim_space_shrink(sim_space *space, uint64_t keep);
bool sim_device_make_room(sim_device *device, uint64_t bytes); /* trims pools if needed; false: still too little */

/* ---- block.c, block_life.c ---- */

typedef enum sim_block_kind {
    SIM_BLOCK_DEVICE,
    SIM_BLOCK_POOLED,
    SIM_BLOCK_PINNED,
    SIM_BLOCK_REGISTERED,
    SIM_BLOCK_MANAGED,
    SIM_BLOCK_MAPPED, /* a struct sim_map */
} sim_block_kind;

/* One allocation. It exists for the host between the allocating and the freeing call, for the device between the
 * operations. */
typedef struct sim_block {
    struct sim_block *previous; /* in sim_memory.blocks */
    struct sim_block *next;
    sim_node by_address; /* in sim_memory.apart, if in no extent */
    sim_extent *extent;  /* NULL: in none */
    bool present;
    sim_block_kind kind;
    uint64_t address;
    uint64_t bytes; /* as asked for */
    uint64_t held;  /* as handed out */
    char *memory;
    sim_device *device;
    sim_context *context;
    struct CUmemPoolHandle_st *pool;
    sim_span *span;
    sim_op *allocation; /* until it is done; held */
    uint64_t id;
    unsigned host_flags;
    bool sync_memops;
    bool of_module;                 /* a global variable: goes only with its module */
    sim_graph_memory *graph;        /* the graph's memory that it is part of */
    sim_page_watch *watch;          /* if its pages are protected; host_access.c */
    sim_shadow *shadow;             /* or NULL */
    sim_in_flight_range *in_flight; /* bytes on their way to the host; in_flight.c */
} sim_block;

CUresult sim_block_allocate(sim_context *context, uint64_t bytes, sim_block **block);
void sim_block_free_now(sim_block *block);
bool sim_pinned_take(sim_block *block, uint64_t bytes); /* sets its address and memory */
void sim_block_publish(sim_block *block);               /* known to the host */
void sim_block_retire(sim_block *block);                /* unknown to the host */
void sim_block_appear(sim_block *block);                /* there for the device */
void sim_block_vanish(sim_block *block);
sim_block *sim_block_at(uint64_t address);                      /* known to the host; interior addresses included */
sim_block *sim_block_around(uint64_t address, uint64_t bytes);  /* that holds the whole range */
sim_block *sim_block_present(uint64_t address, uint64_t bytes); /* there for the device now */
char *sim_memory_at(uint64_t address, uint64_t bytes);          /* NULL: not all there for the device now */
void sim_blocks_of_context_free(const sim_context *context);
void sim_blocks_close(void);
void sim_extent_vanish(sim_extent *extent); /* all blocks there vanish */
void sim_managed_destroy(sim_block *block); /* managed.c: gives its memory back */

/* ---- copy.c ---- */

typedef enum sim_side { SIM_HOST_SIDE, SIM_DEVICE_SIDE, SIM_PEER_SIDE /* of cuMemcpyPeer */, SIM_ANY_SIDE } sim_side;

/* False if the call must not name these bytes. With `graphs`, a graph's memory is known, too. */
bool sim_locate(const sim_context *context, uint64_t address, size_t bytes, sim_side side, bool write, bool graphs,
                sim_place *place);

/* Synchronous calls wait, unless both ends are the device's; so do writes of plain host memory. sim_copy_finish drops
 * the operation. */
CUresult sim_copy_prepare(sim_queue *queue, const sim_place *from, bool synchronous);
CUresult sim_copy_finish(sim_context *context, sim_op *op, const sim_place *to, const sim_place *from,
                         bool synchronous);
typedef struct sim_copy_request {
    uint64_t to;
    uint64_t from;
    size_t bytes;
    sim_side to_side;
    sim_side from_side;
} sim_copy_request;

typedef struct sim_fill_request {
    uint64_t address;
    uint32_t value;
    size_t width;
    size_t count;
    size_t pitch;
    size_t rows;
} sim_fill_request;

CUresult sim_copy_submit(const sim_copy_request *copy, CUstream stream, bool synchronous);
sim_copy_request sim_copy_device_to_device(CUdeviceptr to, CUdeviceptr from, size_t bytes);
sim_copy_request sim_copy_between_peers(CUdeviceptr to, CUdeviceptr from, size_t bytes);
sim_copy_request sim_copy_device_to_host(void *to, CUdeviceptr from, size_t bytes);
CUresult sim_fill_submit(const sim_fill_request *fill, CUstream stream);
sim_copy_request sim_copy_any(CUdeviceptr to, CUdeviceptr from, size_t bytes);
sim_copy_request sim_copy_host_to_device(CUdeviceptr to, const void *from, size_t bytes);
bool sim_copy_on_host(uint64_t address);

/* ---- in_flight.c ---- */

void sim_in_flight_begin(const sim_op *op); /* at submission */
void sim_in_flight_run(const sim_op *op);   /* before it runs */

/* ---- reach.c ---- */

typedef enum sim_toucher { SIM_BY_COPY, SIM_BY_PEER_COPY, SIM_BY_FILL, SIM_BY_KERNEL } sim_toucher;

/* False if the range is not in known blocks. */
bool sim_may_touch(const sim_context *context, uint64_t address, uint64_t bytes, sim_toucher by, bool write);

/* The bytes, for work that runs now; NULL: not all there, or not for that context. */
char *sim_touch(const sim_context *context, uint64_t address, uint64_t bytes, sim_toucher by, bool write);

static inline bool sim_block_is_host(const sim_block *block)
{
    return block->kind == SIM_BLOCK_PINNED || block->kind == SIM_BLOCK_REGISTERED;
}

/* ---- mempool.c ---- */

struct CUmemPoolHandle_st {
    sim_handle handle;
    sim_space space;
    bool is_default;
    bool destroyed; /* lives on until its last block is gone */
    uint64_t blocks;
    CUmemAllocationHandleType handle_types;
    CUmemAccess_flags access[SIM_MAX_DEVICES];
};

CUmemoryPool sim_pool_create(sim_device *device);
void sim_pool_block_gone(CUmemoryPool pool);
CUresult sim_pool_allocate(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult sim_pool_check_access(CUmemoryPool pool, const CUmemAccessDesc *map);
void sim_pool_destroy(CUmemoryPool pool);
CUresult sim_pool_free(CUdeviceptr address, CUstream stream);
CUresult sim_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
bool sim_pool_valid(CUmemoryPool pool);
bool sim_pool_properties_good(const CUmemPoolProps *properties);
CUresult sim_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value);

/* ---- peer.c ---- */

bool sim_peer_enabled(const sim_context *context, const sim_context *peer);
void sim_peers_free(sim_context *context);
CUresult sim_peer_enable(sim_context *context, sim_context *peer, unsigned flags);
CUresult sim_peer_disable(sim_context *context, const sim_context *peer);

/* ---- run.c, copy2d.c, values.c ---- */

bool sim_rows_run(sim_op *op); /* false after an illegal access */
uint64_t sim_rows_bytes(const sim_op *op);
CUresult sim_rows_describe(sim_context *context, const CUDA_MEMCPY3D *asked, sim_op *what); /* for a graph */
bool sim_value_write(sim_op *op);
bool sim_value_reached(sim_op *op); /* also true if the address is gone, which poisons the device */
bool sim_value_satisfies(uint64_t found, uint64_t value, unsigned width, unsigned flags);
void sim_value_bytes(const char *word, unsigned used, unsigned char *bytes); /* reads used halves, each atomically */

/* ---- device_memory.c ---- */

typedef struct sim_device_memory {
    uint64_t bytes;
    uint64_t used;
    sim_space direct;
    sim_space *spaces; /* of memory pools */
    CUmemoryPool default_pool;
    CUmemoryPool current_pool;
} sim_device_memory;

CUresult sim_device_open(sim_device *device, int ordinal);
void sim_device_close(sim_device *device);
void sim_device_observe(sim_device *device, const sim_point *seen); /* as sim_space_observe */

/* ---- copy2d.c ---- */

typedef struct sim_rows_end {
    CUmemorytype type;
    uint64_t host;
    uint64_t device;
    size_t x; /* bytes */
    size_t y;
    size_t z;
    size_t pitch;
    size_t height;
} sim_rows_end;

typedef struct sim_rows_request {
    sim_rows_end to;
    sim_rows_end from;
    size_t width;
    size_t rows;
    size_t planes;
} sim_rows_request;

sim_rows_request sim_rows_of_3d(const CUDA_MEMCPY3D *asked);
CUresult sim_rows_submit(const sim_rows_request *copy, CUstream stream, bool synchronous);

/* ---- managed.c ---- */

typedef struct sim_page_place {
    CUmemLocationType type;
    int id;
} sim_page_place;

/* Advice for a page, and its last prefetch. */
typedef struct sim_managed_page {
    uint64_t accessed_by; /* a bit for each device */
    sim_page_place preferred;
    sim_page_place prefetched;
    bool accessed_by_host;
    bool read_mostly;
} sim_managed_page;

typedef struct sim_managed_memory {
    sim_block block; /* first */
    size_t page_count;
    sim_managed_page *pages;
} sim_managed_memory;

void sim_managed_advise(sim_managed_page *page, CUmem_advise advice, const CUmemLocation *location);
CUresult sim_managed_allocate(sim_context *context, CUdeviceptr *address, size_t bytes, unsigned flags);
sim_managed_page sim_managed_common_of(const sim_managed_page *pages, size_t first, size_t last);
CUresult sim_managed_describe(const sim_managed_page *page, CUmem_range_attribute attribute, void *data, size_t bytes);
sim_managed_memory *sim_managed_find(uint64_t address, size_t bytes, size_t *first, size_t *last);
bool sim_managed_location_good(CUmem_advise advice, const CUmemLocation *location);
CUmemLocation sim_managed_location_of(CUdevice device);
CUresult sim_managed_prefetch(uint64_t address, size_t bytes, const CUmemLocation *location, unsigned flags,
                              CUstream stream);

/* ---- memory.c ---- */

CUresult sim_memory_allocate(sim_context *context, CUdeviceptr *address, size_t bytes);
CUresult sim_memory_allocate_pinned(sim_context *context, void **address, size_t bytes, unsigned flags);
CUresult sim_memory_free(uint64_t address, bool pinned);
const sim_block *sim_memory_pinned_at(const void *address);

/* ---- register.c ---- */

CUresult sim_memory_register(sim_context *context, uint64_t address, size_t bytes, unsigned flags);
CUresult sim_memory_unregister(uint64_t address);

/* ---- pointer.c ---- */

CUresult sim_pointer_get(CUdeviceptr address, CUpointer_attribute attribute, void *data);
CUresult sim_pointer_get_all(unsigned count, const CUpointer_attribute *attributes, void **data, CUdeviceptr address);

/* ---- values.c ---- */

typedef struct sim_value_request {
    uint64_t address;
    uint64_t value;
    unsigned width;
    unsigned flags;
} sim_value_request;

CUresult sim_value_check(const sim_queue *queue, const sim_value_request *value, bool write);
bool sim_value_readable(const sim_value_request *value); /* without a context */
bool sim_value_found(const sim_value_request *value);    /* of a readable one: whether memory satisfies it now */
CUresult sim_value_submit(sim_queue *queue, const sim_value_request *value, bool write);
CUresult sim_values_submit(sim_queue *queue, unsigned count, const CUstreamBatchMemOpParams *ops);

/* ---- vmm_*.c: memory that the program maps ----
 *
 * A map appears in its reservation's window: work over neighbouring maps finds its bytes side by side, as on a device.
 */

/* Bytes that may have several addresses, for the checker. Physicals with the same file share one. */
typedef struct sim_piece {
    uint32_t references; /* physicals, and shadows among the views */
    sim_shadow *views;   /* by next_view */
} sim_piece;

sim_piece *sim_piece_hold(sim_piece *piece);
void sim_piece_drop(sim_piece *piece);

/* Lives while it has handles or maps. */
typedef struct sim_physical {
    sim_handle handle;
    sim_device *device; /* NULL: the host's */
    uint64_t bytes;
    uint64_t handles; /* given out and not released */
    uint64_t maps;
    sim_file file; /* its own, if shareable, or the common one */
    bool own_file;
    bool counted;     /* in the device's used bytes; one of those that share a file is */
    uint64_t offset;  /* in the file */
    sim_piece *piece; /* held */
    CUmemAllocationProp properties;
} sim_physical;

typedef struct sim_range {
    sim_node by_address; /* in sim_memory.ranges */
    uint64_t address;
    uint64_t bytes;
    char *window;
    uint64_t maps;
} sim_range;

typedef struct sim_map {
    sim_block block; /* first; of kind SIM_BLOCK_MAPPED */
    sim_physical *physical;
    sim_range *range;
    bool host_access;                      /* the host reaches these addresses, too */
    unsigned char access[SIM_MAX_DEVICES]; /* CUmemAccess_flags by device */
} sim_map;

sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle); /* NULL: no handle */
sim_physical *sim_physical_make(sim_device *device, uint64_t bytes,
                                const CUmemAllocationProp *properties); /* one handle, no file yet */
void sim_physical_gone(sim_physical *physical);                         /* frees the object, not its bytes */
void sim_physical_unused(sim_physical *physical);                       /* destroys it if unreferenced */
void sim_physicals_close(void);

int sim_share_open(const sim_physical *physical);            /* vmm_share.c: its own file, or -1 */
sim_physical *sim_share_other(const sim_physical *physical); /* with the same file, or NULL */

sim_range *sim_range_at(uint64_t address); /* NULL: not reserved */
void sim_ranges_close(void);

static inline sim_map *sim_map_of(sim_block *block)
{
    return (sim_map *)(void *)block;
}

sim_map *sim_map_at(uint64_t address);
sim_map *sim_map_after(const sim_map *map); /* next in the reservation, without a gap; or NULL */
void sim_map_destroy(sim_map *map);

/* ---- vmm_map.c ---- */

CUresult sim_map_get_access(unsigned long long *flags, const CUmemLocation *location, uint64_t address);
CUresult sim_map_memory(uint64_t address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                        unsigned long long flags);
CUresult sim_map_set_access(uint64_t address, uint64_t bytes, const CUmemAccessDesc *access, size_t count);
CUresult sim_map_unmap(uint64_t address, uint64_t bytes);

/* ---- vmm_physical.c ---- */

CUresult sim_physical_create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *asked,
                             unsigned long long flags);

/* ---- vmm_range.c ---- */

void sim_range_destroy(sim_range *range);
CUresult sim_range_reserve(CUdeviceptr *address, uint64_t bytes, uint64_t alignment, uint64_t wish);

/* ---- vmm_share.c ---- */

CUresult sim_share_export(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                          unsigned long long flags);
CUresult sim_share_import(CUmemGenericAllocationHandle *handle, int file);

/* ---- state.c ---- */

typedef struct sim_memory_state {
    sim_slab pools, physicals;
    sim_block *blocks; /* that the host knows */
    sim_tree extents;  /* all device memory, by address */
    sim_tree apart;    /* blocks in no extent, by address: pinned, registered, managed, mapped */
    sim_tree ranges;
    uint64_t last_block;
    uint64_t device_blocks;
    uint64_t pinned_blocks;
    uint64_t registered_blocks;
    uint64_t mapped_blocks;
    uint64_t reserved_ranges;
} sim_memory_state;

extern sim_memory_state sim_memory;

bool sim_memory_open(void);
void sim_memory_close(void);
void sim_memory_types_open(void); /* run.c */

#endif
