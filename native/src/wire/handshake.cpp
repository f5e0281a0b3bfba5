#include "handshake.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "frame.hpp"

namespace syncline::wire {

Hello hello_from(int from, int to, int rail, int index) {
    Hello hello{};
    hello.magic = kMagic;
    hello.from = static_cast<std::uint16_t>(from);
    hello.to = static_cast<std::uint16_t>(to);
    hello.rail = static_cast<std::uint16_t>(rail);
    hello.index = static_cast<std::uint16_t>(index);
    draw(hello.nonce, sizeof hello.nonce);
    return hello;
}

Handshake::Handshake(Socket socket, const std::vector<std::uint8_t>& secret, const Hello& hello, double deadline_s)
    : socket_(std::move(socket)), secret_(secret), hello_(hello), is_dialer_(true), deadline_s_(deadline_s) {}

Handshake::Handshake(Socket socket, const std::vector<std::uint8_t>& secret, double deadline_s)
    : socket_(std::move(socket)), secret_(secret), is_dialer_(false), deadline_s_(deadline_s), stage_(1) {
    draw(nonce_.data(), nonce_.size());
}

Handshake::State Handshake::refuse(int error) {
    error_ = error;
    return State::refused;
}

bool Handshake::write(const std::vector<std::uint8_t>& bytes) {
    const ssize_t sent = send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent == static_cast<ssize_t>(bytes.size());  // a new connection has room for these few
}

std::optional<std::vector<std::uint8_t>> Handshake::read(std::size_t size, bool& closed) {
    std::uint8_t buffer[64];
    while (got_.size() < size) {
        const ssize_t count = recv(socket_.fd(), buffer, std::min(sizeof buffer, size - got_.size()), MSG_DONTWAIT);
        if (count > 0) {
            has_said_ = true;
            got_.insert(got_.end(), buffer, buffer + count);
        } else if (count < 0 && errno == EINTR) {
            continue;
        } else {
            closed = count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
            return std::nullopt;
        }
    }
    return std::exchange(got_, {});
}

std::vector<std::uint8_t> Handshake::said(const std::uint8_t* nonce) const {
    std::vector<std::uint8_t> all(sizeof hello_ + 16);
    std::memcpy(all.data(), &hello_, sizeof hello_);
    std::memcpy(all.data() + sizeof hello_, nonce, 16);
    return all;
}

Handshake::State Handshake::advance(bool writable) {
    bool closed = false;
    if (stage_ == 0) {
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
        if (error != 0) return refuse(error);
        if (!writable) return State::going;
        if (is_probe) return State::proved;
        std::vector<std::uint8_t> bytes(sizeof hello_);
        std::memcpy(bytes.data(), &hello_, sizeof hello_);
        if (!write(bytes)) return refuse(EPIPE);
        stage_ = 2;
        return State::going;
    }
    if (stage_ == 1) {
        const auto bytes = read(sizeof hello_, closed);
        if (!bytes) return closed ? refuse(ECONNRESET) : State::going;
        std::memcpy(&hello_, bytes->data(), sizeof hello_);
        if (hello_.magic != kMagic) return refuse(EPROTO);
        const Digest proof = hmac(secret_, "accept", said(nonce_.data()));
        std::vector<std::uint8_t> answer(nonce_.begin(), nonce_.end());
        answer.insert(answer.end(), proof.begin(), proof.end());
        if (!write(answer)) return refuse(EPIPE);
        stage_ = 3;
    }
    if (stage_ == 2) {
        const auto bytes = read(16 + sizeof(Digest), closed);
        if (!bytes) return closed ? refuse(ECONNRESET) : State::going;
        const Digest due = hmac(secret_, "accept", said(bytes->data()));
        if (!same(due.data(), bytes->data() + 16, due.size())) return refuse(EACCES);
        const Digest proof = hmac(secret_, "dial", said(bytes->data()));
        if (!write({proof.begin(), proof.end()})) return refuse(EPIPE);
        return State::proved;
    }
    const auto bytes = read(sizeof(Digest), closed);
    if (!bytes) return closed ? refuse(ECONNRESET) : State::going;
    const Digest due = hmac(secret_, "dial", said(nonce_.data()));
    return same(due.data(), bytes->data(), due.size()) ? State::proved : refuse(EACCES);
}

}  // namespace syncline::wire
