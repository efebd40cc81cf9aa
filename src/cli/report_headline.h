// What a part of a report found, in one line: for the terminal, and for whoever skims the file.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <string>

namespace fourfold::cli {

// Of the lines of `bench model`: one user, the most, a prompt, without context; predictions in brackets.
// "1 user 514 tok/s (predicted 428 to 617), 64 users ..., prompt of 2,048 tokens ..."
std::string model_headline(const boost::json::array& lines);

// Of the lines of `bench moe`: the fewest tokens, 64 and the most, uniform routing.
// "1 token 10.0 us (predicted 8.6 to 12.4), 64 tokens ..., 8,192 tokens ..."
std::string layer_headline(const boost::json::array& lines);

// Of what report_verify.h made: "496 of 497 rows and operations passed, 2,957 proofs", and what did not.
std::string verify_headline(const boost::json::object& summary);

}  // namespace fourfold::cli
