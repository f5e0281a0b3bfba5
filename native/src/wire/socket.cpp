#include "socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace syncline::wire {
namespace {

struct Address {
    sockaddr_storage storage{};
    socklen_t size = 0;
};

Address address_of(const std::string& text, std::uint16_t port) {
    Address made;
    auto* four = reinterpret_cast<sockaddr_in*>(&made.storage);
    auto* six = reinterpret_cast<sockaddr_in6*>(&made.storage);
    if (inet_pton(AF_INET, text.c_str(), &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(port);
        made.size = sizeof *four;
    } else if (inet_pton(AF_INET6, text.c_str(), &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(port);
        made.size = sizeof *six;
    } else {
        throw std::runtime_error("\"" + text + "\" is no IP address");
    }
    return made;
}

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

Socket made(int family, const Rail& rail) {
    Socket socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (socket.fd() < 0) fail("no socket");
    // Needs a privilege on older kernels; the address alone ties it too, unless hosts route between their interfaces.
    if (!rail.interface.empty()) {
        setsockopt(socket.fd(), SOL_SOCKET, SO_BINDTODEVICE, rail.interface.c_str(),
                   static_cast<socklen_t>(rail.interface.size()));
    }
    return socket;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
    if (this != &other) {
        if (fd_ >= 0) ::close(fd_);
        fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
}

Socket::~Socket() {
    if (fd_ >= 0) ::close(fd_);
}

Socket listen_on(const Rail& rail) {
    const Address address = address_of(rail.address, 0);
    Socket socket = made(address.storage.ss_family, rail);
    if (bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) < 0) {
        fail("cannot listen on " + rail.address);
    }
    if (listen(socket.fd(), 1024) < 0) fail("cannot listen on " + rail.address);
    return socket;
}

std::uint16_t port_of(const Socket& socket) {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&storage), &size) < 0) fail("a socket has no name");
    if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
    return ntohs(reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port);
}

Socket dial(const Rail& from, const Endpoint& to) {
    const Address own = address_of(from.address, 0), other = address_of(to.address, to.port);
    Socket socket = made(other.storage.ss_family, from);
    if (own.storage.ss_family == other.storage.ss_family &&
        bind(socket.fd(), reinterpret_cast<const sockaddr*>(&own.storage), own.size) < 0) {
        fail("cannot send from " + from.address);
    }
    tune(socket);
    if (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&other.storage), other.size) < 0 &&
        errno != EINPROGRESS) {
        fail("cannot reach " + to.address);
    }
    return socket;
}

Socket accept_on(const Socket& listener) {
    Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.fd() >= 0) tune(socket);
    return socket;
}

Socket second_of(const Socket& socket) { return Socket(fcntl(socket.fd(), F_DUPFD_CLOEXEC, 0)); }

void tune(const Socket& socket) {
    const int yes = 1;
    setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

void limit_unsent(const Socket& socket, std::uint32_t size_bytes) {
    if (size_bytes > 0) setsockopt(socket.fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &size_bytes, sizeof size_bytes);
}

}  // namespace syncline::wire
