// Who is there: both ends of a new connection prove that they know the team's secret before anything else is said.
//
//   dialer                                acceptor
//   Hello (who, to whom, where, nonce) ->
//                                      <- nonce, HMAC("accept", hello, nonce)
//   HMAC("dial", hello, nonce)         ->
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "secret.hpp"
#include "socket.hpp"

namespace syncline::wire {

struct Hello {
    std::uint32_t magic;
    std::uint16_t from, to, rail, index;
    std::uint32_t spare;
    std::uint8_t nonce[16];
};
static_assert(sizeof(Hello) == 32);

class Handshake {
   public:
    enum class State { going, proved, refused };

    // The dialer's side; the connection may still be under way.
    Handshake(Socket socket, const std::vector<std::uint8_t>& secret, const Hello& hello, double deadline_s);
    // The acceptor's side.
    Handshake(Socket socket, const std::vector<std::uint8_t>& secret, double deadline_s);

    State advance(bool writable);
    Socket take() { return std::move(socket_); }
    int fd() const { return socket_.fd(); }
    const Hello& hello() const { return hello_; }
    bool is_dialer() const { return is_dialer_; }
    bool has_said_anything() const { return has_said_; }
    double deadline_s() const { return deadline_s_; }
    int error() const { return error_; }

    int line = -1;
    bool is_probe = false;

   private:
    State refuse(int error);
    bool write(const std::vector<std::uint8_t>& bytes);
    // The bytes that are due, once all are there; empty while they are not.
    std::optional<std::vector<std::uint8_t>> read(std::size_t size, bool& closed);
    std::vector<std::uint8_t> said(const std::uint8_t* nonce) const;

    Socket socket_;
    const std::vector<std::uint8_t>& secret_;
    Hello hello_{};
    bool is_dialer_;
    double deadline_s_;
    int stage_ = 0;
    int error_ = 0;
    bool has_said_ = false;
    std::vector<std::uint8_t> got_;
    std::array<std::uint8_t, 16> nonce_{};
};

Hello hello_from(int from, int to, int rail, int index);

}  // namespace syncline::wire
