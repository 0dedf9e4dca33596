/* Orders that a tool between the program and the GPU does not see, made of waits that it sees. compute-sanitizer
 * misses two:
 *
 *   - what a program learned from cuEventQuery or cuStreamQuery. With STRATA_SHIM_EVENTS_PENDING=1 they call complete
 *     events and idle streams pending, so that a program that wants to come after them must wait, in a stream or on the
 *     host.
 *   - that a new stream's work comes after all that the host had waited for before it made the stream. With
 *     STRATA_SHIM_STREAMS_FOLLOW=1 a stream of the shim's own, which never has work, is there from the first
 * cuStreamCreate on. What the host waits for, the tool puts before the later work of every stream that there is, so
 * before this one's; an event of it, for which each new stream waits at once, passes that on and delays nothing. */
#ifndef STRATA_SHIM_ORDERS_H
#define STRATA_SHIM_ORDERS_H

/* Looks up the driver's entry points, by the names that the library exports. Once, before everything else. */
void shim_orders_open(void *(*find)(const char *name));

/* The entry point to hand out for `symbol`: the shim's own where the environment asks for it, else `real`. */
void *shim_orders_choose(const char *symbol, void *real);

#endif
