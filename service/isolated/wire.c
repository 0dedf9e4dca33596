/* Frames: put into a buffer, sent, received, and read. */
#include "service/isolated/wire.h"

#include "core/base/host_memory.h"
#include "service/isolated/descriptors.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FIRST_ROOM = 1 << 14 };

/* ---- sending ---- */

static void drop_descriptor(wire_out *out)
{
    if (out->descriptors[0].owned)
        isolated_descriptor_close(out->descriptors[0].fd);
    out->descriptor_count--;
    memmove(out->descriptors, out->descriptors + 1, out->descriptor_count * sizeof out->descriptors[0]);
}

void wire_out_close(wire_out *out)
{
    while (out->descriptor_count)
        drop_descriptor(out);
    strata_host_free(out->bytes);
    *out = (wire_out){.bound = out->bound};
}

bool wire_out_is_empty(const wire_out *out)
{
    return out->begin == out->end;
}

size_t wire_frame_bytes(size_t payload)
{
    return (sizeof(wire_head) + payload + 7) & ~(size_t)7;
}

/* Moves what is left to the front of `bytes`. */
static void move_to(wire_out *out, unsigned char *bytes)
{
    if (out->end > out->begin)
        memmove(bytes, out->bytes + out->begin, out->end - out->begin);
    for (size_t i = 0; i < out->descriptor_count; i++)
        out->descriptors[i].at -= out->begin;
    out->end -= out->begin;
    out->begin = 0;
}

static bool grow(wire_out *out, size_t need)
{
    size_t room = out->room ? out->room : FIRST_ROOM;
    while (room < need)
        room *= 2;
    unsigned char *bytes = strata_host_zalloc(room);
    if (!bytes)
        return false;
    move_to(out, bytes);
    strata_host_free(out->bytes);
    out->bytes = bytes;
    out->room = room;
    return true;
}

bool wire_reserve(wire_out *out, size_t payload)
{
    const size_t need = out->end - out->begin + wire_frame_bytes(payload);
    if (need > out->bound)
        return false;
    if (out->room - out->end >= wire_frame_bytes(payload))
        return true;
    if (need > out->room)
        return grow(out, need);
    move_to(out, out->bytes);
    return true;
}

void wire_put(wire_out *out, wire_kind kind, uint64_t number, const void *part, size_t bytes, const void *more,
              size_t more_bytes)
{
    const size_t all = wire_frame_bytes(bytes + more_bytes);
    const wire_head head = {.bytes = (uint32_t)all, .kind = kind, .number = number};
    unsigned char *at = out->bytes + out->end;
    memset(at + all - 8, 0, 8); /* the padding */
    memcpy(at, &head, sizeof head);
    if (bytes)
        memcpy(at + sizeof head, part, bytes);
    if (more_bytes)
        memcpy(at + sizeof head + bytes, more, more_bytes);
    out->end += all;
}

bool wire_may_put_descriptor(const wire_out *out)
{
    return out->descriptor_count < WIRE_DESCRIPTORS / 2; /* as many may wait at the other end */
}

bool wire_has_descriptor(const wire_out *out, int fd)
{
    bool has = false;
    for (size_t i = 0; i < out->descriptor_count; i++)
        has = has || out->descriptors[i].fd == fd;
    return has;
}

void wire_put_descriptor(wire_out *out, wire_kind kind, uint64_t number, const void *part, size_t bytes, int fd,
                         bool owned)
{
    out->descriptors[out->descriptor_count++] = (wire_descriptor){.at = out->end, .fd = fd, .owned = owned};
    wire_put(out, kind, number, part, bytes, NULL, 0);
}

/* Sends bytes up to the next descriptor; if they begin at one, with it. */
static ssize_t send_some(const wire_out *out, int socket)
{
    const wire_descriptor *first = out->descriptor_count ? &out->descriptors[0] : NULL;
    const bool with = first && first->at == out->begin;
    const wire_descriptor *stop = !with ? first : out->descriptor_count > 1 ? first + 1 : NULL;
    struct iovec part = {.iov_base = out->bytes + out->begin, .iov_len = (stop ? stop->at : out->end) - out->begin};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    _Alignas(struct cmsghdr) unsigned char control[CMSG_SPACE(sizeof(int))] = {0};
    if (with) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &first->fd, sizeof(int));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

wire_result wire_flush(wire_out *out, int socket)
{
    while (out->begin < out->end) {
        const ssize_t sent = send_some(out, socket);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM ? WIRE_LATER
                                                                                                  : WIRE_GONE;
        if (out->descriptor_count && out->descriptors[0].at == out->begin)
            drop_descriptor(out);
        out->begin += (size_t)sent;
    }
    out->begin = out->end = 0;
    return WIRE_GOES_ON;
}

/* ---- receiving ---- */

bool wire_in_open(wire_in *in, bool takes_descriptors)
{
    *in = (wire_in){.takes_descriptors = takes_descriptors, .bytes = strata_host_zalloc(WIRE_IN_BYTES)};
    return in->bytes != NULL;
}

void wire_in_close(wire_in *in)
{
    for (size_t i = 0; i < in->descriptor_count; i++)
        close(in->descriptors[i]);
    strata_host_free(in->bytes);
    *in = (wire_in){0};
}

/* Keeps the descriptors that came; false: there are too many. All are kept or closed. */
static bool keep_descriptors(wire_in *in, struct msghdr *message)
{
    bool room = !(message->msg_flags & MSG_CTRUNC);
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            room = room && in->descriptor_count < WIRE_DESCRIPTORS;
            if (room)
                in->descriptors[in->descriptor_count++] = fd;
            else
                close(fd);
        }
    }
    return room;
}

wire_result wire_fill(wire_in *in, int socket)
{
    if (in->begin) {
        memmove(in->bytes, in->bytes + in->begin, in->end - in->begin);
        in->end -= in->begin;
        in->begin = 0;
    }
    if (in->end == WIRE_IN_BYTES)
        return WIRE_GOES_ON; /* frames wait in it */
    struct iovec part = {.iov_base = in->bytes + in->end, .iov_len = WIRE_IN_BYTES - in->end};
    _Alignas(struct cmsghdr) unsigned char control[CMSG_SPACE(WIRE_DESCRIPTORS * sizeof(int))];
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (in->takes_descriptors) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
    }
    ssize_t got;
    while ((got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT)) < 0 && errno == EINTR)
        ;
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? WIRE_LATER : WIRE_GONE;
    if (in->takes_descriptors && !keep_descriptors(in, &message))
        return WIRE_GONE;
    in->end += (size_t)got;
    return got ? WIRE_GOES_ON : WIRE_GONE;
}

wire_result wire_next(wire_in *in, wire_head *head, const unsigned char **payload, size_t *bytes)
{
    if (in->end - in->begin < sizeof *head)
        return WIRE_LATER;
    memcpy(head, in->bytes + in->begin, sizeof *head);
    if (head->bytes < sizeof *head || head->bytes > WIRE_FRAME_LIMIT || head->bytes % 8)
        return WIRE_GONE;
    if (in->end - in->begin < head->bytes)
        return WIRE_LATER;
    *payload = in->bytes + in->begin + sizeof *head;
    *bytes = head->bytes - sizeof *head;
    in->begin += head->bytes;
    return WIRE_GOES_ON;
}

int wire_take_descriptor(wire_in *in)
{
    if (!in->descriptor_count)
        return -1;
    const int fd = in->descriptors[0];
    in->descriptor_count--;
    memmove(in->descriptors, in->descriptors + 1, in->descriptor_count * sizeof in->descriptors[0]);
    return fd;
}

bool wire_read(const unsigned char *payload, size_t bytes, void *into, size_t part, bool whole)
{
    if (bytes < part || (whole && bytes - part >= 8))
        return false;
    memcpy(into, payload, part);
    return true;
}
