/* Memory of pool(export=fd) for other processes, as file descriptors: cuIpcGetMemHandle of the driver knows only its
 * own allocations, and a pool's memory is none. A handle names a socket of the process that has the memory, and an
 * offer there; a process under `strata exec` that opens it is sent the descriptors, and maps them.
 *
 *     handle    magic, number of the offer, name of the socket (64 bytes, as the driver's)
 *     request   number                                        answer   count and offset, then for each part
 *                                                                      its bytes, with a descriptor */
#ifndef STRATA_ADAPTERS_EXEC_IPC_H
#define STRATA_ADAPTERS_EXEC_IPC_H

#include "adapters/exec/exec.h"

#include <sys/socket.h>
#include <sys/un.h>

#define EXEC_IPC_MAGIC "strata1"

typedef struct exec_ipc_handle {
    char magic[8];
    uint64_t number;
    char socket[CU_IPC_HANDLE_SIZE - 16]; /* of the abstract namespace; ends with zeros */
} exec_ipc_handle;
_Static_assert(sizeof(exec_ipc_handle) == sizeof(CUipcMemHandle), "a handle of the driver's size");

/* A chunk with memory of the block. A guest maps the parts one behind the other. */
typedef struct exec_ipc_part {
    uint64_t bytes;
    int file;
} exec_ipc_part;

enum { EXEC_IPC_MOST_PARTS = 65536 };

/* The first message of an answer. */
typedef struct exec_ipc_answer {
    uint64_t count;  /* of parts */
    uint64_t offset; /* of the block in the first one */
    uint64_t bytes;  /* of the block */
} exec_ipc_answer;

/* Fills the address of an abstract socket, and returns its length. */
socklen_t exec_ipc_address(const char *name, struct sockaddr_un *address);

/* Whether the peer is of this process's user. Another user's process can take the name of one that has ended. */
bool exec_ipc_is_same_user(int connection);

/* ---- the process that has the memory (offers.c) ---- */

/* Offers a live block's memory until it is withdrawn; any number of times, by one handle as long as the program
 * leaves the socket open. Errors: those of strata_pool_export, IO (no socket). */
strata_status exec_ipc_offer(exec_device *device, const strata_block *block, exec_ipc_handle *handle);

/* Whether the handle was made by this process. */
bool exec_ipc_is_own(const exec_ipc_handle *handle);

/* ---- the process that uses it (guests.c) ---- */

/* Maps the memory for the current context's device, or adds a holder to the mapping that there is. */
CUresult exec_ipc_open(const exec_ipc_handle *handle, CUdeviceptr *address, size_t *bytes);

/* Whether an address lies in such a mapping. */
bool exec_ipc_is_guest(CUdeviceptr address);

/* Finds the block that contains the address, in such a mapping: it begins where the program was told, and its mapping
 * as a rule before that. False: there is none. */
bool exec_ipc_find_guest(CUdeviceptr address, CUdeviceptr *start, size_t *bytes);

/* Takes a holder from the mapping of the block at an address; the last one waits for the device's work and unmaps it.
 * False: there is no such mapping. *result: the driver's; after an error the mapping is open as before. */
bool exec_ipc_close(CUdeviceptr address, CUresult *result);

#endif
