/* Players: threads, exactly one of which runs at any time, so an input means the same in each run. Each player has a
 * thread's own state: caches, pins, a default stream, a thread exit. */
#ifndef STRATA_FUZZ_PLAYERS_H
#define STRATA_FUZZ_PLAYERS_H

#include <stdbool.h>

enum { PLAYERS = 3 };

/* Runs act() as the player and returns when it has returned. Player 0 is the calling thread; other threads start when
 * first needed, with the device's context current. Called on that one thread only. */
void players_do(unsigned player, void (*act)(void));

/* The player within act(), else 0. */
unsigned players_now(void);

/* Whether the player has a thread. */
bool players_has(unsigned player);

/* Ends the thread of a player other than 0, if it has one; players_do() starts a new one. */
void players_leave(unsigned player);

#endif
