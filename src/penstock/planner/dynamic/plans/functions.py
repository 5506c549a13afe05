"""Which Spark functions give the same result whenever, wherever and in whatever order rows are computed?"""

from __future__ import annotations

_NUMBERS = """
abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees e exp expm1
factorial floor greatest hypot least ln log log10 log1p log2 mod negative pi pmod positive pow power radians rint round
sec sign signum sin sinh sqrt tan tanh width_bucket try_add try_subtract try_multiply try_divide try_mod bit_count
bit_get getbit shiftleft shiftright shiftrightunsigned coalesce if iff ifnull isnan isnotnull isnull nanvl nullif
nullifzero nvl nvl2 zeroifnull equal_null bigint binary boolean decimal double float int smallint string tinyint
to_number try_to_number to_char to_varchar decode
"""
_TEXTS = """
ascii base64 bit_length btrim char char_length character_length chr concat concat_ws contains elt endswith find_in_set
format_number format_string initcap instr lcase left len length levenshtein locate lower lpad ltrim luhn_check mask
octet_length overlay position printf regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like
regexp_replace regexp_substr repeat replace reverse right rlike rpad rtrim sentences soundex space split split_part
startswith substr substring substring_index to_binary translate trim try_to_binary ucase unbase64 unhex upper hex md5
sha sha1 sha2 crc32 hash xxhash64 encode url_encode url_decode try_url_decode parse_url try_parse_url from_json
get_json_object json_array_length json_object_keys schema_of_json to_json from_csv to_csv
"""
_TIMES = """
add_months convert_timezone date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd
datediff datepart day dayname dayofmonth dayofweek dayofyear from_unixtime from_utc_timestamp hour last_day make_date
make_dt_interval make_interval make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval minute month
monthname months_between next_day quarter second timestamp_micros timestamp_millis timestamp_seconds timestampadd
timestampdiff to_date to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc unix_date
unix_micros unix_millis unix_seconds weekday weekofyear year try_to_timestamp try_to_date date timestamp
"""
_NESTED = """
array array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join
array_max array_min array_position array_prepend array_remove array_repeat array_size array_sort array_union
arrays_overlap arrays_zip cardinality element_at exists filter flatten forall get map map_concat map_contains_key
map_entries map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with named_struct reduce aggregate
sequence size slice sort_array str_to_map struct transform transform_keys transform_values try_element_at zip_with
"""
_GENERATORS = "explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple"
_EXACT = """
any bit_and bit_or bit_xor bool_and bool_or count count_if every max min some approx_count_distinct
"""
_SUMS = "sum try_sum avg mean try_avg median percentile percentile_cont percentile_disc"
_FLOATING = """
corr covar_pop covar_samp kurtosis regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
regr_syy skewness std stddev stddev_pop stddev_samp var_pop var_samp variance
"""
_WITH_TIES = "max_by min_by"
_WINDOWED = "cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number"
_ORDERED = "listagg string_agg array_agg collect_list collect_set"
_IN_ARRIVAL_ORDER = """
first first_value last last_value any_value mode approx_percentile percentile_approx histogram_numeric
"""
_VOLATILE = """
rand random randn randstr uniform uuid shuffle monotonically_increasing_id input_file_name input_file_block_start
input_file_block_length spark_partition_id current_user user session_user current_catalog current_database
current_schema current_timezone version java_method reflect try_reflect
"""

GENERATORS = frozenset(_GENERATORS.split())
ROW_WISE = frozenset().union(*(names.split() for names in (_NUMBERS, _TEXTS, _TIMES, _NESTED)))
EXACT = frozenset(_EXACT.split())
"""Aggregates whose result is the same to the last bit, whatever the types of their arguments."""
SUMS = frozenset(_SUMS.split())
"""Those of which that holds where they add whole numbers or decimals."""
AGGREGATES = EXACT.union(SUMS, *(names.split() for names in (_FLOATING, _WITH_TIES)))
WINDOWED = frozenset(_WINDOWED.split())
ORDERED = frozenset(_ORDERED.split())
"""Aggregates whose result hangs on the order of rows, unless that order is given or the result is sorted."""
SORTING = frozenset({"sort_array", "array_sort", "size", "array_size", "cardinality"})
"""What makes the order of the elements of an array irrelevant."""
IN_ARRIVAL_ORDER = frozenset(_IN_ARRIVAL_ORDER.split())
VOLATILE = frozenset(_VOLATILE.split())
MOMENTS = {
    "now": "timestamp",
    "current_timestamp": "timestamp",
    "localtimestamp": "timestamp_ntz",
    "current_date": "date",
    "curdate": "date",
    "unix_timestamp": "bigint",
}
"""Functions of the time of the query, without arguments, and their types."""
