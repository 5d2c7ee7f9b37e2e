// SPDX-License-Identifier: Apache-2.0
// Tuning tables as files: what a GPU or the clock's model said becomes a row, beside the rows that
// are there.
//
// Thread rules: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "attnjit/result.h"
#include "tune/tuner.h"

namespace attnjit::tune {

/// A table's text with the row of this result added, or put in the place of the row that matches
/// the same. `existing` is the table so far, or empty; what else it holds is kept. `date` is
/// written as it is. The text is canonical: the same arguments give the same bytes. A row says in
/// "measured" or in "modelled" where its times are from.
/// Errors: kInvalid where `existing` is no tuning table, and where a modelled row would replace a
/// measured one.
Result<std::string> table_with(std::string_view existing, const TuneRequest& request,
                               const TuneResult& result, std::string_view date);

}  // namespace attnjit::tune
