// One connection of a line: frames written from where they lie, and read into a buffer that stays in the cache.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hub.hpp"
#include "socket.hpp"

namespace syncline::wire {

class Connection {
   public:
    Connection(Hub& hub, Line& line, std::uint64_t epoch, Socket socket);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // Read or write a bounded amount; false when the connection is of no more use, which `why` then explains.
    bool read();
    bool write();

    int fd() const { return socket_.fd(); }
    Line& line() { return line_; }
    std::uint64_t epoch() const { return epoch_; }
    bool is_blocked() const { return is_blocked_; }
    void unblock() { is_blocked_ = false; }
    bool has_more() const { return has_more_; }
    const std::string& why() const { return why_; }

    bool waits_to_write = false;  // the worker has asked to be told when there is room

   private:
    bool fail(std::string why);
    bool begin_frame();
    bool end_frame();
    bool take_data();
    bool fill();
    void prepare(Going& going) const;

    Hub& hub_;
    Line& line_;
    const std::uint64_t epoch_;
    Socket socket_;
    std::string why_;

    FrameHeader header_{};
    std::size_t num_header_ = 0;
    std::size_t num_payload_ = 0;
    std::vector<std::uint8_t> payload_;

    std::vector<Going> going_;
    std::size_t first_ = 0;  // of those going, the first that is not written
    std::size_t gone_ = 0;   // bytes of it that are
    bool is_blocked_ = false;
    bool has_more_ = false;
};

}  // namespace syncline::wire
