/* Orders that a tool between the program and the GPU does not see, made of waits that it sees. compute-sanitizer misses
 * two:
 *
 *   - the knowledge from cuEventQuery or cuStreamQuery. With STRATA_SHIM_EVENTS_PENDING=1 they call complete events and
 *     idle streams pending, so that a program must wait instead, in a stream or on the host.
 *   - that a new stream's work comes after all that the host had waited for before. With STRATA_SHIM_STREAMS_FOLLOW=1
 *     the shim creates a stream of its own, which never has work, at the first cuStreamCreate. The tool orders every
 *     existing stream, and so this one, after the host's waits. Each new stream waits for an event of it, which passes
 *     that order on and delays nothing. */
#ifndef STRATA_SHIM_ORDERS_H
#define STRATA_SHIM_ORDERS_H

/* Looks up the driver's entry points by the library's symbol names. Called once, first. */
void shim_orders_open(void *(*find)(const char *name));

/* The entry point for `symbol`: the shim's own if the environment asks for it, else `real`. */
void *shim_orders_choose(const char *symbol, void *real);

#endif
