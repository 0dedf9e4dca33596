/* What an isolated service and its worker say to each other over a socket pair: frames, each a head and a payload of
 * its kind, in native byte order, since both ends are of one machine.
 *
 *     service                                        worker
 *     HELLO                    -->                          once, first
 *                              <--   READY or FAILED        once, when the context is made, or not
 *     requests                 -->
 *                              <--   DONE or REFUSED        one for each, with its number
 *     BUFFER, BUFFER_END, RELEASE, GRAPH_END, QUESTION -->
 *                              <--   ALIVE, FACTS, LOST
 *
 * A frame is a multiple of 8 bytes long and at most WIRE_FRAME_LIMIT. A BUFFER, a LOAD and a MAKE_GRAPH bring a
 * descriptor, in the order of the frames. What is read is checked for its length here; what its values mean, where they
 * are used. */
#ifndef STRATA_SERVICE_ISOLATED_WIRE_H
#define STRATA_SERVICE_ISOLATED_WIRE_H

#include <strata/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WIRE_VERSION = 3,
    WIRE_FRAME_LIMIT = 1 << 16,
    WIRE_DESCRIPTORS = 16,       /* that may wait for their frames */
    WIRE_BUFFER_LIMIT = 1 << 16, /* shared buffers of a service; they have the numbers below it */
    WIRE_TEXT_LIMIT = 1 << 14,   /* of a stack text, or a kernel's name (SERVICE_ENTRY_LIMIT) */
    WIRE_RELEASE_LIMIT = 4096,   /* references of a frame */
    WIRE_GRAPH_LIMIT = 1 << 26,  /* bytes of a graph's requests */
};

typedef enum wire_kind {
    WIRE_HELLO = 1,
    WIRE_ALLOCATE,
    WIRE_COPY_TO_HOST,
    WIRE_COPY_FROM_HOST,
    WIRE_LOAD,
    WIRE_LAUNCH,
    WIRE_BLAS,
    WIRE_NOTHING, /* a request that is answered in its turn, and does nothing: it failed before it was sent */
    WIRE_BUFFER,
    WIRE_BUFFER_END,
    WIRE_RELEASE, /* payload: numbers of references */
    WIRE_QUESTION,
    WIRE_COPY, /* on the device; a request, as are the next three */
    WIRE_FILL,
    WIRE_MAKE_GRAPH,
    WIRE_PLAY_GRAPH,
    WIRE_GRAPH_END,

    WIRE_READY = 64,
    WIRE_FAILED, /* no context could be made: wire_error */
    WIRE_DONE,
    WIRE_REFUSED, /* a request failed: wire_error */
    WIRE_LOST,    /* the worker's service has stopped: wire_error */
    WIRE_ALIVE,
    WIRE_FACTS,
} wire_kind;

typedef struct wire_head {
    uint32_t bytes; /* of the frame, with this */
    uint32_t kind;
    uint64_t number; /* of a request; a buffer's; a graph's that ends; else 0 */
} wire_head;

typedef struct wire_hello {
    uint32_t version;
    int32_t device;
    uint32_t completion, streams, stream_count, queue_capacity;
    uint64_t poll_interval;
    uint32_t has_libraries, nvtx;
    char libraries[256];           /* with its end */
    uint32_t has_text, text_bytes; /* the stack text follows, without its end */
} wire_hello;

/* The head of each request: strata_send_options. */
typedef struct wire_send {
    uint32_t priority, hint;
    uint64_t sender;
} wire_send;

typedef struct wire_allocate {
    wire_send send;
    uint64_t length;
    uint32_t type, raw;
} wire_allocate;

typedef struct wire_copy {
    wire_send send;
    uint64_t ref, offset, bytes; /* from there on, of the reference */
    uint64_t buffer, buffer_offset;
} wire_copy;

typedef struct wire_load {
    wire_send send;
    uint64_t bytes; /* of the image, which is the descriptor's file */
} wire_load;

typedef struct wire_launch {
    wire_send send;
    uint64_t module;
    uint32_t grid[3], block[3];
    uint32_t shared_bytes, argument_count, entry_bytes, unused; /* the arguments follow, then the entry's name */
} wire_launch;

typedef struct wire_argument {
    uint32_t kind, bytes;
    unsigned char value[8];
    uint64_t ref, offset, ref_bytes; /* from there on, of the reference */
} wire_argument;

typedef struct wire_operand {
    uint64_t ref, first, bytes; /* of the reference: from that byte on */
    uint32_t type, unused;
    uint64_t offset, leading, stride, step; /* strata_blas_operand */
} wire_operand;

enum { WIRE_TRANSPOSE_A = 1, WIRE_TRANSPOSE_B = 2, WIRE_RIGHT = 4, WIRE_UPPER = 8, WIRE_UNIT_DIAGONAL = 16 };

/* strata_service_blas_call; what the routine does not have is zero. */
typedef struct wire_blas {
    wire_send send;
    uint32_t routine, order, flags, unused;
    uint64_t m, n, k, count;
    double alpha, beta;
    wire_operand operands[3]; /* in the order of service_blas_operands */
} wire_blas;

typedef struct wire_device_copy {
    wire_send send;
    uint64_t from, from_offset, to, to_offset, bytes; /* from there on, of both references */
} wire_device_copy;

typedef struct wire_device_fill {
    wire_send send;
    uint64_t ref, offset, bytes; /* from there on, of the reference */
    uint32_t value, width;
} wire_device_fill;

/* The file has whole frames of the kinds LAUNCH, BLAS, COPY and FILL. Their numbers and wire_send are not read. The
 * service numbers its graphs, so that it can play one before this is answered. */
typedef struct wire_graph {
    wire_send send;
    uint64_t graph; /* its number, above those of the graphs before it */
    uint64_t bytes; /* of the frames, which are the descriptor's file */
    char name[256]; /* with its end */
} wire_graph;

typedef struct wire_play {
    wire_send send;
    uint64_t graph; /* of the wire_graph */
} wire_play;

typedef struct wire_buffer {
    uint64_t bytes; /* of the descriptor's file, which is sealed against a change of its size */
} wire_buffer;

typedef struct wire_ready {
    uint32_t version, compute_major, compute_minor, unused;
    uint64_t free_bytes, total_bytes;
} wire_ready;

typedef struct wire_done {
    uint64_t ref;    /* allocate: the worker's number of it */
    uint64_t module; /* load */
} wire_done;

typedef struct wire_facts {
    uint64_t free_bytes, total_bytes;
    uint32_t active_streams, unused;
} wire_facts;

typedef struct wire_error {
    uint32_t status, driver_code, tag, unused;
    uint64_t requested, in_use, remaining, limit, reserved_free, largest_free, device_free, generation;
    char driver_name[64], driver_call[64], message[512];
} wire_error;

/* ---- sending ---- */

typedef struct wire_descriptor {
    size_t at; /* byte of the buffer that it goes with */
    int fd;
    bool owned; /* closed when it is sent, or dropped */
} wire_descriptor;

/* Bytes that are to be sent: those from `begin` to `end`. Its owner guards it. */
typedef struct wire_out {
    unsigned char *bytes;
    size_t begin, end, room, bound; /* grows to the bound, which is constant */
    wire_descriptor descriptors[WIRE_DESCRIPTORS];
    size_t descriptor_count;
} wire_out;

typedef enum wire_result { WIRE_GOES_ON = 0, WIRE_LATER, WIRE_GONE } wire_result;

void wire_out_close(wire_out *out);
bool wire_out_is_empty(const wire_out *out);

/* The bytes of a frame with that payload. */
size_t wire_frame_bytes(size_t payload);

/* Makes room for a frame of that payload. False: the bound is reached, or there is no host memory. */
bool wire_reserve(wire_out *out, size_t payload);

/* Adds a frame of two parts, of which the second may be empty; there is room. The second also adds a descriptor. */
void wire_put(wire_out *out, wire_kind kind, uint64_t number, const void *part, size_t bytes, const void *more,
              size_t more_bytes);
bool wire_may_put_descriptor(const wire_out *out);
bool wire_has_descriptor(const wire_out *out, int fd); /* it is not sent yet */
void wire_put_descriptor(wire_out *out, wire_kind kind, uint64_t number, const void *part, size_t bytes, int fd,
                         bool owned);

/* Sends what the socket takes now. LATER: not all. GONE: the other end is. */
wire_result wire_flush(wire_out *out, int socket);

/* ---- receiving ---- */

typedef struct wire_in {
    unsigned char *bytes; /* WIRE_IN_BYTES */
    size_t begin, end;
    int descriptors[WIRE_DESCRIPTORS]; /* oldest first */
    size_t descriptor_count;
    bool takes_descriptors; /* else those that come are closed by the system */
} wire_in;

enum { WIRE_IN_BYTES = 4 * WIRE_FRAME_LIMIT };

/* False without host memory. */
bool wire_in_open(wire_in *in, bool takes_descriptors);
void wire_in_close(wire_in *in);

/* Reads what is there now. LATER: nothing. GONE: the other end is, or sent descriptors beyond what may wait. */
wire_result wire_fill(wire_in *in, int socket);

/* The next whole frame: its head, and its payload, good until the next wire_fill. LATER: none. GONE: it has no possible
 * length. */
wire_result wire_next(wire_in *in, wire_head *head, const unsigned char **payload, size_t *bytes);

/* The oldest descriptor, which is the caller's; -1: none has come. */
int wire_take_descriptor(wire_in *in);

/* Copies the fixed part of a payload. False: the payload is shorter; with `whole`, also if it is longer. */
bool wire_read(const unsigned char *payload, size_t bytes, void *into, size_t part, bool whole);

/* ---- error records ---- */

void wire_pack_error(const strata_error *error, wire_error *packed);

/* Whatever the bytes are, *error is a failure's record. */
void wire_unpack_error(const wire_error *packed, strata_error *error);

#endif
