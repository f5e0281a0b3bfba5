// Sockets of the wire: never blocking, closed with the object, tied to one address and interface.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "syncline/wire.hpp"

namespace syncline::wire {

class Socket {
   public:
    explicit Socket(int fd = -1) : fd_(fd) {}
    Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Socket& operator=(Socket&& other) noexcept;
    ~Socket();
    int fd() const { return fd_; }

   private:
    int fd_;
};

// These throw std::runtime_error with what the system said.
Socket listen_on(const Rail& rail);
std::uint16_t port_of(const Socket& socket);
Socket dial(const Rail& from, const Endpoint& to);  // the connection is under way when it returns
Socket accept_on(const Socket& listener);           // fd -1: nobody is there
void tune(const Socket& socket);
// Take no more from its writer than is soon sent: what is urgent overtakes the rest, and others have their turn.
void limit_unsent(const Socket& socket, std::uint32_t size_bytes);
Socket second_of(const Socket& socket);  // the same connection again

}  // namespace syncline::wire
