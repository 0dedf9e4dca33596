/* What memory debuggers are told of simulated memory.
 *
 * Valgrind's memcheck and the address sanitizer know of each byte of the process whether the program may touch it;
 * memcheck knows also whether anything was ever written there. The bytes of device memory lie in large mappings that
 * they would take for the program's own, all of them good: so the driver says, as work runs, which are whose. Bytes are
 * closed outside allocations, and from a free on; fresh at an allocation; written when a kernel says that it writes
 * them, or copies and fills do, which the tools see for themselves, and with which memcheck carries what was never
 * written from place to place. All of that happens when the operation runs, not when it is called for.
 *
 * A host that follows a device address faults with or without a tool. What is found here goes wrong in code that has
 * real pointers: the twins of kernels, host functions, and the host with pinned and managed memory (in_flight.c).
 *
 * Memory that the program maps itself is as good as any file's while it is mapped, and gone afterwards: one piece may
 * be seen at several addresses, between which no tool carries anything.
 *
 * The leak checker of the sanitizers looks for pointers in the heap and in variables alone. The driver's objects lie in
 * mappings of their own, and what they hold would be taken for leaked by whoever looks while the driver is there, as
 * libFuzzer does after an input: so the driver says where they are.
 *
 * The address sanitizer closes eight bytes at once: where only some of eight are to be closed, they may stay open.
 *
 * Without a tool a request costs a few instructions; the functions do nothing else. Called with sim.lock held. */
#ifndef STRATA_SIM_DEBUGGER_H
#define STRATA_SIM_DEBUGGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether Valgrind runs the process: whichever of its tools, the addresses that a process can have are some tens of
 * gigabytes then, and what is reserved in advance must be less. */
bool sim_debugger_is_valgrind(void);

bool sim_debugger_is_there(void); /* any of them */

/* No allocation has the bytes. */
void sim_bytes_close(const char *memory, uint64_t bytes);

/* An allocation is there from now on, and gone: a tool that follows those of the program reports it as it does theirs.
 * `held` bytes from its beginning belong to no other. */
void sim_bytes_born(const char *memory, uint64_t bytes, uint64_t held);
void sim_bytes_gone(const char *memory, uint64_t bytes);

void sim_bytes_written(const char *memory, uint64_t bytes);

/* For memcheck alone: bytes of an allocation that its user must not touch for now, or that nobody has written yet.
 * Until they are written or the allocation ends. */
void sim_bytes_fence(const char *memory, uint64_t bytes);
void sim_bytes_unwritten(const char *memory, uint64_t bytes);

/* Between the two, memcheck says nothing of what this thread reads. */
void sim_debugger_look_away(void);
void sim_debugger_look_again(void);

/* The addresses are anybody's. The second is for a whole mapping before it goes, in which every part that was in use
 * has been forgotten already: its costs do not depend on how large it is. */
void sim_bytes_forget(const char *memory, uint64_t bytes);
void sim_bytes_forget_range(const char *memory, uint64_t bytes);

/* Pointers to the driver's own memory are there from now on, or not any more: a leak checker follows them. */
void sim_bytes_hold_pointers(const char *memory, uint64_t bytes);
void sim_bytes_hold_no_pointers(const char *memory, uint64_t bytes);

/* Bytes that the host must not touch for a time: what a tool knows of them is put aside, and they are closed. Nothing
 * happens if no tool listens, if some of the bytes are closed already, or without memory. */
typedef struct sim_in_flight_range sim_in_flight_range;
void sim_bytes_in_flight(sim_in_flight_range **ranges, const char *memory, uint64_t bytes);
void sim_bytes_landed(sim_in_flight_range **ranges); /* all of the list */

#endif
