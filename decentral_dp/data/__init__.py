"""Data: records from files, packages and generators, which public rules partition over the agents."""

from decentral_dp.data.dataset import Dataset
from decentral_dp.data.loaders import DATASETS, ENVIRONMENTS, load_dataset
from decentral_dp.data.scaling import Normalised, Ranges, apply_ranges, declared_ranges, normalise, scale
from decentral_dp.data.shards import PARTITIONS, AgentParts, Shards, make_shards, partition, select_test, split_shards
from decentral_dp.data.streams import Draw, Sampling, draw_batch
from decentral_dp.data.synthetic import SYNTHETIC
