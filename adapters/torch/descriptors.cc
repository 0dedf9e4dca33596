/* File descriptors for other processes: a thread answers on a socket of the abstract namespace, and sends them as
 * ancillary data to processes of its own user. Unlike pidfd_getfd(2) this needs no right to trace the process.
 *
 *     handle    "strata1" , number of the offer, name of the socket
 *     request   number                                        answer   count, offset, then for each part
 *                                                                      its bytes, with a descriptor */
#include "processes.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <poll.h>
#include <pthread.h>
#include <random>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace strata_torch
{

namespace
{

constexpr char magic[] = "strata1";
constexpr size_t magic_bytes = sizeof magic - 1, number_bytes = sizeof(uint64_t);

class Socket
{
  public:
    explicit Socket(int file) : file(file)
    {
    }
    ~Socket()
    {
        if (file >= 0)
            close(file);
    }
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;

    const int file;
};

sockaddr_un address_of(const std::string &name, socklen_t *length)
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
    *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
}

/* Whether the peer is of this process's user. Another user's process can take the name of one that has ended. */
bool is_same_user(int file)
{
    ucred peer{};
    socklen_t length = sizeof peer;
    return getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

bool send_value(int file, uint64_t value, int descriptor = -1)
{
    iovec part{&value, sizeof value};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    return sendmsg(file, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof value);
}

/* *descriptor, if not NULL: -1 where none came. False: with errno 0 where the peer has ended. */
bool receive_value(int file, uint64_t *value, int *descriptor = nullptr)
{
    iovec part{value, sizeof *value};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t got;
    do {
        got = recvmsg(file, &message, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    const int error = got < 0 ? errno : 0;
    int received = -1;
    const cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (got > 0 && header && header->cmsg_type == SCM_RIGHTS)
        memcpy(&received, CMSG_DATA(header), sizeof received);
    if (descriptor)
        *descriptor = received;
    else if (received >= 0)
        close(received);
    errno = error;
    return got == static_cast<ssize_t>(sizeof *value);
}

/* A peer that stalls is given up. */
void set_patience(int file)
{
    const timeval patience{5, 0};
    setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

/* Never destroyed: the thread uses it until the process ends. */
struct Offers {
    std::mutex lock;
    std::map<uint64_t, SharedParts> parts; /* with descriptors of its own; guarded by lock */
    uint64_t next = 1;                     /* guarded by lock */
    std::string name;                      /* of the socket; empty: there is none; guarded by lock */
    int file = -1;                         /* guarded by lock */
    ino_t inode = 0;                       /* of the socket; guarded by lock */
};

Offers &offers()
{
    static Offers *one = new Offers;
    return *one;
}

/* Copies of an offer's descriptors, so that none is sent under the lock, for which the end of a block waits. */
class Copies
{
  public:
    explicit Copies(uint64_t number)
    {
        std::lock_guard<std::mutex> guard(offers().lock);
        const auto at = offers().parts.find(number);
        if (at == offers().parts.end())
            return;
        parts = at->second;
        for (int &file : parts.files)
            file = fcntl(file, F_DUPFD_CLOEXEC, 0);
    }
    ~Copies()
    {
        for (int file : parts.files)
            if (file >= 0)
                close(file);
    }
    Copies(const Copies &) = delete;
    Copies &operator=(const Copies &) = delete;

    SharedParts parts{}; /* none: there is no such offer */
};

void answer(int file)
{
    uint64_t number = 0;
    if (!is_same_user(file) || !receive_value(file, &number))
        return;
    const Copies copies(number);
    const SharedParts &parts = copies.parts;
    if (parts.files.empty())
        return;
    bool sent = send_value(file, parts.bytes.size()) && send_value(file, parts.offset);
    for (size_t i = 0; sent && i < parts.bytes.size(); i++)
        sent = parts.files[i] >= 0 && send_value(file, parts.bytes[i], parts.files[i]);
}

bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

/* While there is a shortage the connection waits, and the thread tries again. False: the socket is of no more use. */
bool serve_next(int listener)
{
    constexpr int look_again = 200; /* ms */
    const Socket peer(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    const int error = errno;
    if (peer.file >= 0) {
        set_patience(peer.file);
        try {
            answer(peer.file);
        } catch (const std::bad_alloc &) { /* the receiver gets no answer */
        }
        return true;
    }
    if (is_shortage(error))
        poll(nullptr, 0, look_again);
    return is_shortage(error) || error == EINTR || error == ECONNABORTED;
}

/* False: the program has closed the descriptor, and may have another file of that number. The lock is held. */
bool is_open(const Offers &all)
{
    struct stat now;
    return fstat(all.file, &now) == 0 && S_ISSOCK(now.st_mode) && now.st_ino == all.inode;
}

/* The next offer starts another thread. */
void end_server(int listener)
{
    Offers &all = offers();
    std::lock_guard<std::mutex> guard(all.lock);
    if (all.file != listener)
        return;
    if (is_open(all))
        close(listener);
    all.file = -1;
    all.name.clear();
}

void *serve(void *listener)
{
    const int file = static_cast<int>(reinterpret_cast<intptr_t>(listener));
    while (serve_next(file)) {
    }
    end_server(file);
    return nullptr;
}

/* Starts the thread with all signals blocked: they are the program's. */
bool start_thread(int listener)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&thread, nullptr, serve, reinterpret_cast<void *>(intptr_t{listener})) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (started)
        pthread_detach(thread);
    return started;
}

/* Opens the socket and starts the thread, unless there is one. The lock is held. */
void start_server()
{
    Offers &all = offers();
    if (!all.name.empty() && is_open(all))
        return;
    std::random_device random;
    const std::string name =
        "strata-torch-" + std::to_string(getpid()) + "-" + std::to_string((uint64_t{random()} << 32) | random());
    socklen_t length;
    const sockaddr_un address = address_of(name, &length);
    all.file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct stat facts {
    };
    const bool ready = all.file >= 0 && fstat(all.file, &facts) == 0 &&
                       bind(all.file, reinterpret_cast<const sockaddr *>(&address), length) == 0 &&
                       listen(all.file, 64) == 0 && start_thread(all.file);
    if (!ready) {
        const int error = errno;
        if (all.file >= 0)
            close(all.file);
        all.file = -1;
        all.name.clear();
        TORCH_CHECK(false, "Strata: memory cannot be shared with other processes: ", strerror(error));
    }
    all.inode = facts.st_ino;
    all.name = name;
}

} // namespace

bool is_handle(const std::string &handle)
{
    return handle.size() > magic_bytes + number_bytes && handle.compare(0, magic_bytes, magic) == 0;
}

uint64_t offer_parts(const SharedParts &parts)
{
    Offers &all = offers();
    std::lock_guard<std::mutex> guard(all.lock);
    start_server();
    const uint64_t number = all.next++;
    all.parts[number] = parts;
    return number;
}

std::string handle_of(uint64_t number)
{
    std::lock_guard<std::mutex> guard(offers().lock);
    start_server();
    std::string handle = magic;
    handle.append(reinterpret_cast<const char *>(&number), sizeof number);
    return handle.append(offers().name);
}

void withdraw_parts(uint64_t number)
{
    std::lock_guard<std::mutex> guard(offers().lock);
    offers().parts.erase(number);
}

static SharedParts receive_parts(int file)
{
    SharedParts parts{};
    uint64_t count = 0;
    bool got = receive_value(file, &count) && receive_value(file, &parts.offset);
    for (uint64_t i = 0; got && i < count; i++) {
        uint64_t bytes = 0;
        int descriptor = -1;
        got = receive_value(file, &bytes, &descriptor) && descriptor >= 0;
        if (descriptor >= 0) {
            parts.bytes.push_back(bytes);
            parts.files.push_back(descriptor);
        }
    }
    if (!got || !count) {
        const bool stalls = !got && errno == EAGAIN;
        for (int descriptor : parts.files)
            close(descriptor);
        TORCH_CHECK(!stalls, "Strata: the process that shared the memory does not answer");
        TORCH_CHECK(false, "Strata: the process that shared the memory has freed it, or has ended");
    }
    return parts;
}

/* Waits while the sender has many others to serve, for 5 seconds at most; the program's signals do not end that. */
static bool connect_to(int file, const sockaddr_un &address, socklen_t length)
{
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (connect(file, reinterpret_cast<const sockaddr *>(&address), length) != 0)
        if (errno != EINTR || std::chrono::steady_clock::now() >= end)
            return false;
    return true;
}

SharedParts fetch_parts(const std::string &handle)
{
    uint64_t number = 0;
    memcpy(&number, handle.data() + magic_bytes, sizeof number);
    socklen_t length;
    const sockaddr_un address = address_of(handle.substr(magic_bytes + number_bytes), &length);
    const Socket file(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    TORCH_CHECK(file.file >= 0, "Strata: memory of another process cannot be mapped: ", strerror(errno));
    set_patience(file.file);
    TORCH_CHECK(connect_to(file.file, address, length),
                "Strata: the process that shared the memory does not answer: ", strerror(errno));
    TORCH_CHECK(is_same_user(file.file), "Strata: the memory was shared by a process of another user");
    TORCH_CHECK(send_value(file.file, number),
                "Strata: the process that shared the memory does not answer: ", strerror(errno));
    return receive_parts(file.file);
}

} // namespace strata_torch
